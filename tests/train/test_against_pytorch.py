#!/usr/bin/env python3
"""Logits, gradients and the first AdamW losses against PyTorch, from the same initial weights.

usage: test_against_pytorch.py DUMP_MODEL DECK [key=value ...]

The models below are written from the papers in plain tensor operations (no fused attention, any
PyTorch from 1.13 on), in double precision. Exit code 77: PyTorch is not here, nothing was compared.
"""
import json
import math
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TOLERANCE = 1e-4  # relative to the largest magnitude of the tensor that is compared


def causal_attention(q, k, v):
    """q (B,H,T,D), k and v (B,Hkv,T,D) -> (B,T,H*D)"""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    T = q.shape[2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    y = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    return y.transpose(1, 2).flatten(2)


def heads(x, n):
    return x.unflatten(-1, (n, x.shape[-1] // n)).transpose(1, 2)


def gpt_logits(w, m, tokens):
    C, H, eps = m["width"], m["heads"], m["eps"]
    x = w["wte"][tokens] + w["wpe"][: tokens.shape[1]]
    for i in range(m["layers"]):
        p = lambda name: w[f"h.{i}.{name}"]
        h = F.layer_norm(x, (C,), p("ln1.gain"), p("ln1.bias"), eps)
        q, k, v = (heads(t, H) for t in F.linear(h, p("attn.qkv.weight"), p("attn.qkv.bias")).split(C, -1))
        x = x + F.linear(causal_attention(q, k, v), p("attn.proj.weight"), p("attn.proj.bias"))
        h = F.layer_norm(x, (C,), p("ln2.gain"), p("ln2.bias"), eps)
        h = F.linear(h, p("mlp.fc.weight"), p("mlp.fc.bias"))
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        x = x + F.linear(h, p("mlp.proj.weight"), p("mlp.proj.bias"))
    x = F.layer_norm(x, (C,), w["lnf.gain"], w["lnf.bias"], eps)
    return x @ (w["wte"] if m["tied"] else w["head.weight"]).T


def rms_norm(x, gain, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def rotate(x, base):
    """x (B,H,T,D): pairs (j, j + D/2) turn by position * base^(-2j/D)"""
    T, D = x.shape[-2:]
    angle = torch.arange(T)[:, None] * base ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    a, b = x[..., : D // 2], x[..., D // 2 :]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def llama_logits(w, m, tokens):
    C, H, Hkv, eps = m["width"], m["heads"], m["kv_heads"], m["eps"]
    D = C // H
    x = w["wte"][tokens]
    for i in range(m["layers"]):
        p = lambda name: w[f"layers.{i}.{name}"]
        h = rms_norm(x, p("norm1.gain"), eps)
        q, k, v = (h @ p("attn.qkv.weight").T).split([H * D, Hkv * D, Hkv * D], -1)
        q, k = rotate(heads(q, H), m["rope_base"]), rotate(heads(k, Hkv), m["rope_base"])
        x = x + causal_attention(q, k, heads(v, Hkv)) @ p("attn.proj.weight").T
        gate, up = (rms_norm(x, p("norm2.gain"), eps) @ p("mlp.gate_up.weight").T).chunk(2, -1)
        x = x + (F.silu(gate) * up) @ p("mlp.down.weight").T
    x = rms_norm(x, w["norm.gain"], eps)
    return x @ (w["wte"] if m["tied"] else w["head.weight"]).T


def load(path, shape, dtype=np.float32):
    return torch.from_numpy(np.fromfile(path, dtype).reshape(shape).astype(np.int64 if dtype == np.int32 else np.float64))


def check(what, ours, theirs):
    scale = theirs.abs().max().item()
    off = (ours - theirs).abs().max().item() / max(scale, 1e-30)
    print(f"{what:40} largest difference {off:.2e} of {scale:.3g}")
    assert off <= TOLERANCE, f"{what}: {off:.2e} > {TOLERANCE}"


def main():
    program, deck, overrides = sys.argv[1], sys.argv[2], sys.argv[3:]
    with tempfile.TemporaryDirectory() as d:
        plain = ["optimizer.kind=adamw", "optimizer.schedule=constant", "optimizer.warmup_steps=0"]
        subprocess.run([program, deck, d, *plain, *overrides], check=True)
        m = json.load(open(f"{d}/manifest.json"))
        shapes = {t["name"]: t["shape"] for t in m["tensors"]}
        w = {n: load(f"{d}/weight.{n}", s).requires_grad_() for n, s in shapes.items()}
        gradients = {n: load(f"{d}/gradient.{n}", s) for n, s in shapes.items()}
        steps = (m["steps"], m["batch"], m["seq"])
        tokens, targets = (load(f"{d}/{n}", steps, np.int32) for n in ("tokens", "targets"))
        logits_ours = load(f"{d}/logits", (m["batch"], m["seq"], m["vocab"]))

    model = gpt_logits if m["family"] == "gpt" else llama_logits
    loss = lambda s, logits: F.cross_entropy(logits.flatten(0, 1), targets[s].flatten())

    logits = model(w, m, tokens[0])
    check("logits", logits_ours, logits)
    loss(0, logits).backward()
    for name, g in gradients.items():
        check(f"gradient of {name}", g, w[name].grad)

    o = m["optimizer"]
    matrices = [t for t in w.values() if t.dim() > 1]
    others = [t for t in w.values() if t.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": o["decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    for s in range(m["steps"]):
        optimizer.zero_grad()
        value = loss(s, model(w, m, tokens[s]))
        value.backward()
        if o["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(list(w.values()), o["clip"])
        optimizer.step()
        check(f"loss of step {s + 1}", torch.tensor([m["losses"][s]]), value.detach()[None])


main()
