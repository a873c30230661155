"""Train a Transformer to translate sentences that a grammar generates.

    python examples/train_toy_translation.py                  Chinese to English: one minute
    python examples/train_toy_translation.py --pair en-es     English to Spanish
    python examples/train_toy_translation.py --resume         continue after an interruption

`minigrad translate runs/zh-en "我 有 一只 猫"` uses the result. `minigrad train` has more options,
and trains on sentence pairs of your own.
"""

import argparse
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import minigrad as mg
import nn
from minigrad.fast.runtime import available_cores
from minigrad.optim import Adam, cosine_schedule
from nn.commands.console import count, run_script, seed
from nn.text.batches import PairBatches
from nn.text.pairs import split_pairs
from nn.text.scores import translation_scores
from nn.text.tokenize import SpaceTokenizer
from nn.text.toy_corpora import ALWAYS, chinese_english, english_spanish
from nn.text.vocabulary import Vocabulary


def main(argv=None):
    began = time.perf_counter()
    args = parse(argv)
    run_dir = args.out or Path("runs") / args.pair
    say = (lambda *_: None) if args.quiet else print
    mg.manual_seed(args.seed)

    # Corpus. The first pairs are what everyone tries first: learn them well. Then hold sentences
    # out: 600 to translate at the end, and 200 that decide which weights are the best.
    generate = chinese_english if args.pair == "zh-en" else english_spanish
    pairs = generate(args.sentences, args.seed)
    first, rest = pairs[: len(ALWAYS[args.pair])], pairs[len(ALWAYS[args.pair]) :]
    num_test, num_valid = 3 * len(pairs) // 40, len(pairs) // 40
    test, valid, train = split_pairs(rest, num_test, num_valid, seed=args.seed)
    train = first + train + 7 * first
    say(f"{len(train):,} pairs to learn, {len(valid)} to validate, {len(test)} held out")

    # Vocabularies. The tokens are words, and the id of a word is its index in the vocabulary.
    words = SpaceTokenizer()
    source_vocab = Vocabulary.build(words(source) for source, _ in train)
    target_vocab = Vocabulary.build(words(target) for _, target in train)

    # Model. The output layer shares its weights with the target embedding.
    sizes = {"d_model": 128, "num_heads": 4, "d_ff": 256, "dropout": 0.05, "tie": "target"}
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    config = nn.TransformerConfig(len(source_vocab), len(target_vocab), **sizes, **layers)
    model = nn.Transformer(config)
    translator = nn.Translator(model, source_vocab, target_vocab, words, words)
    say(f"{len(source_vocab)} and {len(target_vocab)} words, {model.num_parameters():,} parameters")

    # Batches of about 1,024 tokens a side, with sentences of similar length.
    def batches(pairs, shuffle):
        encode_target = lambda text: target_vocab.encode(words(text), bos=True, eos=True)
        ids = [(source_vocab.encode(words(a)), encode_target(b)) for a, b in pairs]
        return PairBatches(ids, 1024, shuffle=shuffle, seed=args.seed)

    # Trainer. The learning rate rises in 100 steps, and falls to zero by the last one.
    train_batches = batches(train, shuffle=True)
    steps = args.epochs * len(train_batches)
    trainer = nn.Trainer(
        model,
        Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-9, clip_norm=1.0),
        train_batches,
        valid=batches(valid, shuffle=False),
        objective=nn.ModelLoss(label_smoothing=0.05),
        schedule=cosine_schedule(steps, warmup=min(100, steps // 2)),
        max_epochs=args.epochs,
        save_every=200,
        parallel=args.processes,
        run_dir=run_dir,
        progress=not args.quiet,
    )
    trainer.fit(resume=args.resume)
    if trainer.parallel.rank:  # of the processes of mpiexec, the first does the rest
        return
    translator.save(run_dir)  # beside the weights: the settings and the vocabularies
    nn.load_weights(run_dir / "best.safetensors", model)

    # Translate the held-out sentences with a beam search.
    translations = translator.translate([source for source, _ in test], beam_size=4)
    references = [target for _, target in test]
    texts = [translation.text for translation in translations]
    exact = np.mean([text == reference for text, reference in zip(texts, references)])
    for i in np.random.default_rng(args.seed).permutation(len(test))[:10]:
        mark = "=" if texts[i] == references[i] else "≠"
        say(f"  {test[i][0]}\n    → {texts[i]}\n    {mark} {references[i]}")
    loss = trainer.evaluate(batches(test, shuffle=False))
    figures = f"loss {loss:.3f}, exact match {exact:.1%}"

    # Other packages compute BLEU, and draw the loss and what the words of a translation attended to.
    has_sacrebleu, has_matplotlib = map(find_spec, ("sacrebleu", "matplotlib"))
    if has_sacrebleu:
        figures += f", BLEU {translation_scores(texts, references).bleu:.1f}"
    if has_matplotlib:
        nn.plots.loss_curve(trainer.history, "loss by step", run_dir / "loss.png")
        maps, source, target = translator.attention(translations[0])
        nn.plots.attention_grid(maps["cross"], target, source, texts[0], run_dir / "attention.png")
    if not (has_sacrebleu and has_matplotlib):
        say('pip install -e ".[all]" adds BLEU, and pictures of the loss and of attention')
    print(
        f"{len(test)} held-out sentences: {figures}; {trainer.step} steps in "
        f"{trainer.seconds:.0f} s, {time.perf_counter() - began:.0f} s in all; run directory {run_dir}"
    )


def parse(argv):
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    add = parser.add_argument
    cores = min(4, available_cores())
    add("--pair", choices=["zh-en", "en-es"], default="zh-en", help="languages (%(default)s)")
    add("--sentences", type=count, default=8000, help="pairs to generate (%(default)s)")
    add("--epochs", type=count, default=7, help="passes over the pairs (%(default)s)")
    add("--seed", type=seed, default=0, help="of all random numbers (%(default)s)")
    add("--processes", type=count, default=cores, help="that share a batch (%(default)s)")
    add("--out", type=Path, help="run directory (runs/PAIR)")
    add("--resume", action="store_true", help="continue the run in the run directory")
    add("--quiet", action="store_true", help="print the last line only")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(run_script(main))
