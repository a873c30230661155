"""Train the small Transformer of Wu et al. (2021), arXiv:2105.14462, on Multi30k.

    python examples/multi30k.py --data DIR                English to German: 41.02 BLEU there
    python examples/multi30k.py --data DIR --resume       continue after an interruption
    python examples/multi30k.py --data DIR --r-drop 5     with R-Drop
    python examples/multi30k.py --data DIR --bpe-dropout 0.1   with BPE dropout
    minigrad translate runs/multi30k --average 10 --beam 8 < test.en > test.de

DIR contains train.lc.norm.tok.en, train.lc.norm.tok.de and the same of val: tokenized text in
lower case. The settings are those of the paper.
"""

import argparse
import sys
from pathlib import Path

from bpe_dropout import BPEDropout
from rdrop import RDrop

import minigrad as mg
import nn
from minigrad.optim import Adam, inverse_sqrt_schedule, linear_schedule
from nn.commands.console import amount, count, run_script, seed
from nn.text.batches import PairBatches
from nn.text.pairs import read_pairs
from nn.text.scores import translation_scores
from nn.text.tokenize import BPETokenizer
from nn.text.vocabulary import SPECIALS, Vocabulary

PIECES = 10_256  # 10,000 joint byte-level merges, and the 256 bytes
SIZES = {
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
    "d_model": 128,
    "num_heads": 4,
    "d_ff": 256,
    "dropout": 0.3,
}
LR, WARMUP, LABEL_SMOOTHING = 0.005, 2000, 0.1
BATCH_TOKENS = 8192
VALIDATE_EVERY = 100  # steps


def read(directory, part):
    files = [f"{directory}/{part}.lc.norm.tok.{language}" for language in ("en", "de")]
    return read_pairs(*files, keep_repeated=part == "val")


def make_translator(pairs, **sizes):
    """Return an untrained model with one vocabulary, and one table for source, target and output."""
    sources, targets = zip(*pairs)
    bpe = BPETokenizer.train([*sources, *targets], PIECES, whole_words=True)
    vocab = Vocabulary([*SPECIALS, *bpe.pieces])  # with all pieces, no token is unknown
    # dropout after sublayers and of embeddings only
    undropped = {"activation_dropout": 0.0, "attention": nn.AttentionConfig(dropout=0.0)}
    table = {"tie": "all", "output_bias": False, "max_len": 256}
    n = len(vocab)
    config = nn.EncoderDecoderConfig(n, n, **{**SIZES, **sizes}, **undropped, **table)
    return nn.Translator(nn.Transformer(config), vocab, vocab, bpe, bpe, source_eos=True)


def make_batches(translator, pairs, seed=1, shuffle=False, bpe_dropout=0.0, max_tokens=None):
    """Return batches of ids; with `bpe_dropout`, the pieces are drawn in each epoch."""
    split, vocab = translator.source_tokenizer, translator.source_vocab
    options = {"shuffle": shuffle, "seed": seed}
    max_tokens = max_tokens or BATCH_TOKENS
    encode = lambda a, b: (vocab.encode(a, eos=True), vocab.encode(b, bos=True, eos=True))
    if not bpe_dropout:
        return PairBatches([encode(split(a), split(b)) for a, b in pairs], max_tokens, **options)
    drop = BPEDropout(split, bpe_dropout)
    draw = lambda pair, rng: encode(drop(pair[0], rng), drop(pair[1], rng))
    return PairBatches(pairs, max_tokens, encode=draw, **options)


def bleu(translator, pairs, beam_size=1):
    texts = [t.text for t in translator.translate([source for source, _ in pairs], beam_size)]
    return translation_scores(texts, [target for _, target in pairs], tokenize="none").bleu


def main(argv=None):
    args = parse(argv)
    mg.manual_seed(args.seed)
    train, valid = read(args.data, "train"), read(args.data, "val")
    translator = make_translator(train)
    model = translator.model
    falls = args.schedule == "linear"
    trainer = nn.Trainer(
        model,
        Adam(model.parameters(), LR, betas=(0.9, 0.98), eps=1e-9, clip_norm=1.0),
        make_batches(translator, train, args.seed, shuffle=True, bpe_dropout=args.bpe_dropout),
        valid=make_batches(translator, valid),
        objective=RDrop(args.r_drop, LABEL_SMOOTHING)
        if args.r_drop
        else nn.ModelLoss(label_smoothing=LABEL_SMOOTHING),
        schedule=linear_schedule(args.steps, WARMUP) if falls else inverse_sqrt_schedule(WARMUP),
        max_steps=args.steps,
        validate_every=VALIDATE_EVERY,
        save_every=50,
        score=lambda _: bleu(translator, valid),  # of greedy translations
        keep_last=10,
        parallel=args.processes,
        run_dir=args.out,
        progress=not args.quiet,
    )
    trainer.fit(resume=args.resume)
    if trainer.parallel.rank:  # of the processes of mpiexec, the first does the rest
        return
    translator.save(args.out)  # beside the weights: the configuration and the vocabulary
    model.load_state_dict(nn.average_weights(trainer.run.checkpoints()))
    score = bleu(translator, valid, beam_size=5)
    print(f"mean of the last 10 weights: BLEU {score:.2f} of validation; run directory {args.out}")


def parse(argv):
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="directory of the files")
    add("--r-drop", type=amount, default=0.0, help="weight of its divergence")
    add("--bpe-dropout", type=amount, default=0.0, help="share of left-out merges")
    add("--steps", type=count, default=8000, help="updates (%(default)s)")
    schedules = ["inverse-sqrt", "linear"]
    add("--schedule", choices=schedules, default=schedules[0], help="of the rate (%(default)s)")
    add("--seed", type=seed, default=1, help="of all random numbers (%(default)s)")
    add("--processes", type=count, default=1, help="that share a batch (%(default)s)")
    add("--out", type=Path, default=Path("runs/multi30k"), help="run directory (%(default)s)")
    add("--resume", action="store_true", help="continue the run in the run directory")
    add("--quiet", action="store_true", help="show no progress")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(run_script(main))
