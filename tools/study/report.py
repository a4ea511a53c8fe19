"""Table and plot of the convergence study, from its result lines alone."""
import json
import os
import statistics

COLUMNS = ["model", "exchange", "density", "seeds", "validation loss", "over dense AdamS", "average traffic",
           "bytes a parameter and step", "residual norm", "mask overlap"]


def read(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f if line.strip()]


def exchange(s):
    """Who decides what travels."""
    kind = s["optimizer.kind"]
    if kind == "scape":
        stored = ", stored v" if s.get("scape.second_moment") == "stored" else ""
        same = ", same step" if s.get("scape.lateness") == 0 else ""
        return f"{s['scape.rule']} {s['scape.score']}{stored}{same}"
    return f"{s['exchange.elements']} {kind}" if "exchange.elements" in s else f"dense {kind}"


def density(s, steps):
    if "sparsity.density" not in s:
        return ""
    over = s["sparsity.warmup_steps"] / steps
    how = {0: "fixed", 0.5: "half", 1: "run"}.get(over, f"over {over:g}")
    return f"{s['sparsity.density']:g} {how}"


USUAL = {"optimizer.kind", "optimizer.lr", "optimizer.min_lr", "scape.rule", "scape.score", "exchange.elements",
         "scape.second_moment", "scape.lateness",
         "sparsity.density", "sparsity.density_start", "sparsity.warmup_steps"}


def details(s):
    """Learning rate, and what else a row overrides."""
    extra = [f"{k.split('.')[-1]} {v}" for k, v in s.items() if k not in USUAL]
    return " ".join([f"lr {s['optimizer.lr']:g}", *extra])


def label(s, steps):
    """A row's name without its model and seed."""
    return " ".join(filter(None, [exchange(s), density(s, steps), details(s)]))


def groups(lines):
    """Runs that differ in their seed alone, together."""
    out = {}
    for line in lines:
        out.setdefault((line["deck"], label(line["settings"], line["steps"])), {})[line["seed"]] = line
    return out


def best(found, deck, kind):
    """The dense group of that kind with the lowest loss of its first seed."""
    dense = [g for (d, _), g in found.items() if d == deck
             and exchange(next(iter(g.values()))["settings"]) == f"dense {kind}"]
    return min(dense, key=lambda g: g[min(g)]["valid_loss"], default={})


def over(group, reference):
    """Mean difference over the seeds that both have: they share initial weights and data."""
    both = group.keys() & reference.keys()
    return statistics.mean(group[s]["valid_loss"] - reference[s]["valid_loss"] for s in both) if both else None


def cells(deck, group, reference):
    lines = list(group.values())
    first = group[min(group)]
    losses = [line["valid_loss"] for line in lines]
    spread = f" ± {(max(losses) - min(losses)) / 2:.4f}" if len(losses) > 1 else ""
    difference = over(group, reference)

    def also(k):
        values = [line["also"][k]["mean"] for line in lines if k in line.get("also", {})]
        return f"{statistics.mean(values):.3g}" if values else ""

    s = first["settings"]
    return [deck, f"{exchange(s)}, {details(s)}", density(s, first["steps"]) or "1", str(len(lines)),
            f"{statistics.mean(losses):.4f}{spread}",
            "" if difference is None else f"{difference:+.4f}",
            f"{statistics.mean(line['density'] for line in lines):.3f}",
            f"{statistics.mean(line['bytes_per_parameter'] for line in lines):.2f}",
            also("feedback_norm"), also("mask_overlap")]


def order(line):
    """Dense rows first, by learning rate; the others as they come."""
    s = line["settings"]
    return (1, "", 0) if "sparsity.density" in s else (0, exchange(s), s["optimizer.lr"])


def table(lines):
    found = groups(sorted(lines, key=order))
    out = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for deck in sorted({d for d, _ in found}, reverse=True):
        reference = best(found, deck, "adams")
        for (d, _), group in found.items():
            if d == deck:
                out.append("| " + " | ".join(cells(deck, group, reference)) + " |")
    return "\n".join(out)


NOTES = """# Does it train? The measured rows

Written by `tools/study_convergence --table` from `results.jsonl`; the decks are `inputs/study-llama.toml` and
`inputs/study-gpt.toml`. {steps} steps of 2,048 tokens on 4 ranks.

- density: the target, and how it is reached. run, half: geometric from 1 over the whole run or its first half;
  fixed: from the first step.
- validation loss: nats a byte at the last step, over 131,072 bytes, the same ones for every row. Of several
  seeds the mean, and half of the distance between the highest and the lowest.
- over dense AdamS: mean difference to AdamS at its best learning rate, seed by seed (same initial weights, same
  data).
- average traffic: mean of the density over the run. Bytes: sent by one rank, all collectives together.
- residual norm, mask overlap: means over the run.

"""


def write(results):
    """table.md and convergence.png beside the result lines."""
    lines = read(results)
    if not lines:
        raise SystemExit(f"no result lines in {results}")
    folder = os.path.dirname(results)
    with open(f"{folder}/table.md", "w") as f:
        steps = " or ".join(str(n) for n in sorted({line["steps"] for line in lines}))
        f.write(NOTES.format(steps=steps) + table(lines) + "\n")
    print(f"{folder}/table.md")
    try:
        import matplotlib
    except ImportError:
        print("no plot: this Python has no matplotlib (Debian's has: apt-get install python3-matplotlib, "
              "/usr/bin/python3 tools/study_convergence --table)")
        return
    matplotlib.use("Agg")
    figure(groups(lines), f"{folder}/convergence.png")
    print(f"{folder}/convergence.png")


COLOURS = {"dense adams": "black", "dense adamw": "grey", "catch_up after": "tab:blue",
           "catch_up after, stored v": "tab:green", "catch_up before, same step": "tab:pink",
           "catch_up before": "tab:cyan", "paper before": "tab:red", "topk_ef adams": "tab:orange",
           "clt_k adams": "tab:olive"}
MARKERS = {"run": "o", "half": "s", "fixed": "v"}


def figure(found, path):
    """Left: final loss against bytes. Middle: loss over the run. Right: residual norm over the run."""
    import matplotlib.pyplot as plt
    fig, (trade, curves, residual) = plt.subplots(1, 3, figsize=(15, 4.6))
    for kind, style in (("adams", "-"), ("adamw", "--")):
        reference = best(found, "llama", kind)
        if reference:
            y = statistics.mean(line["valid_loss"] for line in reference.values())
            trade.axhline(y, color=COLOURS[f"dense {kind}"], linestyle=style, label=f"dense {kind}, best rate")
            curves.plot(*zip(*reference[min(reference)]["valid_losses"]), color=COLOURS[f"dense {kind}"],
                        linestyle=style)
    seen = set()
    for (deck, _), group in found.items():
        first = group[min(group)]
        s = first["settings"]
        if deck != "llama" or "sparsity.density" not in s:
            continue
        who, how = exchange(s), density(s, first["steps"]).split()[-1]
        colour = COLOURS.get(who, "tab:purple")
        trade.plot(statistics.mean(line["bytes_per_parameter"] for line in group.values()),
                   statistics.mean(line["valid_loss"] for line in group.values()), MARKERS.get(how, "D"),
                   color=colour, label=None if who in seen else who)
        seen.add(who)
        style = "-" if s["sparsity.density"] >= 0.1 else ":"
        if how == "half":
            curves.plot(*zip(*first["valid_losses"]), color=colour, linestyle=style)
            series = first.get("also", {}).get("feedback_norm", {}).get("series")
            if series:
                residual.plot(*zip(*series), color=colour, linestyle=style)
    trade.set(xscale="log", xlabel="bytes sent a parameter and step", ylabel="validation loss, nats a byte",
              title="circle: over the run; square: over half; triangle: fixed")
    trade.legend(fontsize=8)
    curves.set(xlabel="step", ylabel="validation loss", title="over half the run to 0.1 (lines) and 0.01 (dots)")
    low = [line["valid_loss"] for group in found.values() for line in group.values()]
    curves.set_ylim(min(low) - 0.02, min(low) + 0.6)
    residual.set(xlabel="step", ylabel="norm of the error feedback", title="residual, the same rows")
    for axis in (trade, curves, residual):
        axis.grid(alpha=0.3)
    fig.tight_layout()
    fig.savefig(path, dpi=110)
