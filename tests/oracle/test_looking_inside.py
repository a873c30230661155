"""Looking into published models: attention, hidden states and attributions as transformers and PyTorch give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import batch, make

import nn

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip(
    "transformers", reason="Hugging Face's models are the oracle; it is not installed"
)


def both(path: Path, name: str) -> tuple[Any, Any]:
    theirs = make(transformers, torch, name)
    theirs.set_attn_implementation("eager")
    theirs.save_pretrained(path)
    return theirs, nn.load(path)


@pytest.mark.parametrize("name", ["bert", "albert, masked", "gpt2", "mistral", "qwen3", "gemma"])
def test_attention_and_hidden_states(tmp_path: Path, name: str) -> None:
    theirs, ours = both(tmp_path, name)
    ids, mask = batch(theirs)
    with torch.no_grad():
        expected = theirs(
            torch.tensor(ids),
            attention_mask=torch.tensor(mask).long(),
            output_attentions=True,
            output_hidden_states=True,
        )
    with nn.record_attention(ours) as attention, nn.record_hidden(ours) as hidden:
        ours.hidden(ids, mask)
    maps = [w for found in attention.values() for w in found]
    assert len(maps) == len(expected.attentions) == 2
    for found, weights in zip(maps, expected.attentions):
        real = np.broadcast_to(mask[:, None, :, None], found.shape)
        np.testing.assert_allclose(found[real], weights.numpy()[real], atol=1e-5)
    states = [h for name, found in hidden.items() for h in found if not name.endswith("norm")]
    before_last = (
        states[:-1] if isinstance(ours, nn.LanguageModel) else states
    )  # theirs ends behind the last norm
    if name.startswith("albert"):
        before_last = before_last[1:]  # theirs begins behind the projection
    for found, state in zip(before_last, expected.hidden_states[name.startswith("albert") :]):
        np.testing.assert_allclose(found[mask], state.numpy()[mask], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["marian", "t5"])
def test_attention_of_translators(tmp_path: Path, name: str) -> None:
    theirs, ours = both(tmp_path, name)
    ids, _ = batch(theirs)
    source, target = ids[0], ids[2, :5]
    start = np.array([[ours.config.bos_id, *target[:-1]]])
    with torch.no_grad():
        expected = theirs(
            torch.tensor(source[None]),
            decoder_input_ids=torch.tensor(start),
            output_attentions=True,
        )
    maps = nn.attention_maps(ours, source, target)
    for kind in ("encoder", "decoder", "cross"):
        weights = getattr(expected, f"{kind}_attentions")
        assert len(weights) == len(maps[kind]) > 1
        for found, layer in zip(maps[kind], weights):
            np.testing.assert_allclose(found, layer.numpy()[0], atol=1e-5)


@pytest.mark.parametrize("name", ["bert, classes", "gpt2", "llama", "marian"])
def test_attributions(tmp_path: Path, name: str) -> None:
    """Gradient times input, by PyTorch's own derivatives."""
    theirs, ours = both(tmp_path, name)
    ids, _ = batch(theirs)
    source, target = ids[0], ids[2, :5]
    translates = isinstance(ours, nn.Transformer)
    embed = theirs.get_input_embeddings()
    scale = ours.config.embedding_factor if translates else 1.0
    x = (embed(torch.tensor(source[None])) * scale).detach().requires_grad_()
    y = (
        embed(torch.tensor(target[None])).detach().requires_grad_()
    )  # which their decoder scales by itself
    given = {"inputs_embeds": x} | ({"decoder_inputs_embeds": y} if translates else {})
    logits = theirs(**given).logits[0]
    (logits[-1] if logits.ndim == 2 else logits)[1].backward()
    expected = [(z.grad * z)[0].sum(-1).detach().numpy() for z in ([x, y] if translates else [x])]
    found = (
        nn.attribute(ours, source, 1, target=target)
        if translates
        else [nn.attribute(ours, source, 1)]
    )
    for own, other in zip(found, expected):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["bert, classes", "qwen3", "t5"])
def test_attention_in_pictures_and_in_the_explorer(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib", reason="pictures need it")
    _, ours = both(tmp_path / "model", name)
    ids = np.array([5, 9, 7, 4])
    words = ["the", "cat", "sat", "down"]
    target = (
        {"target": ids[:3], "target_tokens": words[:3]} if isinstance(ours, nn.Transformer) else {}
    )
    page = nn.explore(ours, ids, words, path=tmp_path / "page.html", **target)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    kinds = ("encoder", "decoder", "cross") if target else ("self",)
    assert [f'"name": "{kind}"' in page for kind in kinds] == [True] * len(kinds)
    with nn.record_attention(ours) as recorded:
        ours(*([ids[None], ids[None, :3]] if target else [ids[None]]))
    own = [
        w[0]
        for name, found in recorded.items()
        for w in found
        if name.startswith(("encoder", "layers"))
    ]
    grid = nn.plots.attention_grid(own, words, words, "heads", tmp_path / "grid.png")
    drawn = [np.asarray(axes.images[0].get_array()) for axes in grid.axes if axes.images]
    np.testing.assert_allclose(drawn, np.concatenate(own), atol=1e-6)
    nn.plots.attention_heatmap(own[0][0], words, words, path=tmp_path / "map.png")
    assert (tmp_path / "grid.png").stat().st_size > 1000 and (
        tmp_path / "map.png"
    ).stat().st_size > 1000
