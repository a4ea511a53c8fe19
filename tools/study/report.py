"""Table and plot of the convergence study, from its result lines alone."""
import json
import os
import statistics

COLUMNS = ["model", "exchange", "bits", "density", "seeds", "validation loss", "over dense AdamS", "average density",
           "bytes a parameter and step", "residual norm", "mask overlap"]
RANKS = 4


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
    if "exchange.error" in s:
        return f"{ {'loco': 'LoCo', 'none': 'plain'}[s['exchange.error']]} {kind}"
    return f"{s['exchange.elements']} {kind}" if "exchange.elements" in s else f"dense {kind}"


def bits(s):
    """Of gradients and of weights on their way back."""
    return f"{s.get('exchange.value_bits', 32)}/{s.get('exchange.delta_bits', 32)}"


def density(s, steps):
    if "sparsity.density" not in s:
        return ""
    over = s["sparsity.warmup_steps"] / steps
    how = {0: "fixed", 0.5: "half", 1: "run"}.get(over, f"over {over:g}")
    start = s["sparsity.density_start"]
    begins = "" if start in (1, s["sparsity.density"]) else f" from {start:g}"
    return f"{s['sparsity.density']:g}{begins} {how}"


USUAL = {"optimizer.kind", "optimizer.lr", "optimizer.min_lr", "scape.rule", "scape.score", "exchange.elements",
         "scape.second_moment", "scape.lateness", "exchange.value_bits", "exchange.delta_bits", "exchange.error",
         "sparsity.density", "sparsity.density_start", "sparsity.warmup_steps"}


def details(s):
    """Learning rate, and what else a row overrides."""
    extra = [f"{k.split('.')[-1]} {v}" for k, v in s.items() if k not in USUAL]
    return " ".join([f"lr {s['optimizer.lr']:g}", *extra])


def label(s, steps):
    """A row's name without its model and seed."""
    low = f"{bits(s)} bits" if bits(s) != "32/32" else ""
    return " ".join(filter(None, [exchange(s), density(s, steps), low, details(s)]))


def groups(lines):
    """Runs that differ in their seed alone, together."""
    out = {}
    for line in lines:
        out.setdefault((line["deck"], label(line["settings"], line["steps"])), {})[line["seed"]] = line
    return out


def best(found, deck, kind):
    """The dense group of that kind with the lowest loss of its first seed."""
    dense = [g for (d, _), g in found.items() if d == deck
             for first in [next(iter(g.values()))["settings"]]
             if exchange(first) == f"dense {kind}" and bits(first) == "32/32"]
    return min(dense, key=lambda g: g[min(g)]["valid_loss"], default={})


def over(group, reference):
    """Mean difference over the seeds that both have: they share initial weights and data."""
    both = group.keys() & reference.keys()
    return statistics.mean(group[s]["valid_loss"] - reference[s]["valid_loss"] for s in both) if both else None


def bytes_of(group):
    """There and back, of all ranks' messages: dense fp32 is 8. A rank sends (P-1)/P of that."""
    return statistics.mean(line["bytes_per_parameter"] for line in group.values()) * RANKS / (RANKS - 1)


def loss_of(group):
    return statistics.mean(line["valid_loss"] for line in group.values())


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
    return [deck, f"{exchange(s)}, {details(s)}", bits(s), density(s, first["steps"]) or "1", str(len(lines)),
            f"{statistics.mean(losses):.4f}{spread}",
            "" if difference is None else f"{difference:+.4f}",
            f"{statistics.mean(line['density'] for line in lines):.3f}",
            f"{bytes_of(group):.3g}",
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
- bits: of gradients on the way to their owners / of weights (32) or their changes on the way back.
- average density: mean over the run. Bytes a parameter and step: of all messages, there and back, mean over the
  run; dense fp32 is 8, and one of P ranks sends (P-1)/P of it.
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
           "clt_k adams": "tab:olive", "LoCo adamw": "tab:purple", "plain adamw": "tab:brown"}
MARKERS = {"run": "o", "half": "s", "fixed": "v", "": "D"}


def figure(found, path):
    """Left: final loss against bytes. Middle: loss over the run. Right: residual norm over the run."""
    import matplotlib.pyplot as plt
    fig, (trade, curves, residual) = plt.subplots(1, 3, figsize=(18, 5.4), width_ratios=(2, 1, 1))
    for kind, style in (("adams", "-"), ("adamw", "--")):
        reference = best(found, "llama", kind)
        if reference:
            colour = COLOURS[f"dense {kind}"]
            trade.axhline(loss_of(reference), color=colour, linestyle=style, label=f"dense {kind}, fp32, best rate")
            curves.plot(*zip(*reference[min(reference)]["valid_losses"]), color=colour, linestyle=style)
    seen = set()
    for (deck, _), group in found.items():
        first = group[min(group)]
        s = first["settings"]
        if deck != "llama" or not any(k.startswith(("sparsity.", "exchange.")) for k in s):
            continue
        who, how = exchange(s), (density(s, first["steps"]) or " ").split(" ")[-1]
        colour = COLOURS[who]
        trade.plot(bytes_of(group), loss_of(group), MARKERS[how], color=colour,
                   markerfacecolor="none" if bits(s) == "32/32" else colour, label=None if who in seen else who)
        if bits(s) != "32/32":
            trade.annotate(bits(s), (bytes_of(group), loss_of(group)), fontsize=7, xytext=(4, 3),
                           textcoords="offset points")
        seen.add(who)
        if how == "half" and bits(s) == "32/32":
            style = "-" if s["sparsity.density"] >= 0.1 else ":"
            curves.plot(*zip(*first["valid_losses"]), color=colour, linestyle=style)
            series = first.get("also", {}).get("feedback_norm", {}).get("series")
            if series:
                residual.plot(*zip(*series), color=colour, linestyle=style)
    low = [line["valid_loss"] for group in found.values() for line in group.values()]
    trade.set_ylim(min(low) - 0.01, min(low) + 0.3)
    trade.set(xscale="log", xlabel="bytes a parameter and step, there and back", ylabel="validation loss, nats a byte",
              title="density falls over the run: circle; half of it: square; never: triangle; 1: diamond. "
                    "Filled: bits as written", )
    trade.title.set_fontsize(9)
    trade.legend(fontsize=8)
    curves.set(xlabel="step", ylabel="validation loss", title="over half the run to 0.1 (lines) and 0.01 (dots)")
    curves.set_ylim(min(low) - 0.02, min(low) + 0.6)
    residual.set(xlabel="step", ylabel="norm of the error feedback", title="residual, the same rows")
    for axis in (trade, curves, residual):
        axis.grid(alpha=0.3)
    fig.tight_layout()
    fig.savefig(path, dpi=110)
