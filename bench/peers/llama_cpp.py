#!/usr/bin/env python3
"""What llama.cpp makes of the GGUF files that mixtape writes, beside what mixtape makes of the same files.

usage: llama_cpp.py MIXTAPE LLAMA TEXTS WORK OUT.csv [FILTER [SMOLLM.gguf [WITNESS]]]
  MIXTAPE   the program
  LLAMA     folder of llama-completion, llama-perplexity, llama-imatrix and llama-quantize
  TEXTS     folder of wikitext2_test.txt (perplexity, KL), tinyshakespeare.txt (tokens), tiny_stories.txt (calibration)
  WORK      folder for models and files; models that are there already are used again
  OUT.csv   gets a row for each thing that was compared
  FILTER    regular expression for "check, model"; the others are left out
  SMOLLM.gguf, WITNESS   a GGUF file of a llama and a directory, compared as the packaged models are
Needs numpy, safetensors, gguf and tokenizers; for SMOLLM.gguf torch too. Checks:
  loads       warnings while a file is loaded, but for those of contexts
  greedy      characters of 64 tokens after each of four prompts
  chat        characters of 48 tokens after a question in the model's template
  logits      largest difference of log-probabilities, as a share of the largest, over 128 tokens; both in f32
  tokens      of texts in many scripts, that differ
  ppl, kl     of the second halves of windows of wikitext; `as it runs`: llama.cpp rounds what quantized matrices are
              multiplied with to 8 bits, f16 and bf16 to their type; `decoded`: its own decoding of the file, in f32
  weights     of calibrated files, decoded by llama.cpp, that differ from MLX's
  imatrix     the same text's importance: differences over sums, worst weight; and whether llama-quantize takes ours
  seconds     of writing Q4_1 and F16 on two threads, both programs in turn, the best of three
"""
import csv
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from llama_files import calibrated_weights, decoded_weights, importance, log_probability_distance, read_base
from llama_models import ROOT, models_with_words, small_models

COLUMNS = ["check", "model", "type", "mixtape", "llama_cpp", "difference", "bound", "holds"]
PROMPTS = ("Once upon a time", "The old man", "In the year 1066 there", "She said")
TEXT = ("Hello world,  two  spaces   three. Tabs\tand\nnew lines\n\n\nmany 3.14159 1234567 12 1,000 don't I'LL we've "
        "naïve café Zürich Straße 日本語のテキスト 中文 한국어 😀👩‍👩‍👧 🇩🇪 Привет мир Ελλάδα x=1;y==2!=3 "
        "// f(foo)[bar]{baz} ALLCAPS mixedCase snake_case\u00a0nbsp\u2003em\u200bzw مرحبا بالعالم עברית १२३ ٣٤٥ Ⅷ ½ ² end.\n  \n\tx \u2581mark ")
# Attention and its cache in f32; one thread, because two of llama.cpp's wait for each other in turns on a busy machine.
EXACT = ["-fa", "off", "-ctk", "f32", "-ctv", "f32", "-t", 1]
BITS = {"Q8_0": 8, "Q5_1": 5, "Q4_1": 4}  # MLX codes; the mixes are made of GGUF's own blocks
MIXES = ("q2_k", "q3_k_m", "q4_0", "q4_k_m", "q5_0", "q5_k_m", "q6_k")


def seconds_of(run):
    begin, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - begin, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


class Bench:
    def __init__(self, mixtape, llama, texts, work, out, wanted="", smollm="", witness=""):
        self.mixtape, self.llama, self.texts = Path(mixtape).resolve(), Path(llama).resolve(), Path(texts).resolve()
        self.work, self.out, self.wanted = Path(work).resolve(), Path(out).resolve(), wanted
        self.work.mkdir(parents=True, exist_ok=True)
        self.written = set()
        self.small = small_models(self.work)
        self.words = models_with_words(self.work, (self.texts / "wikitext2_test.txt").read_text()[:300000])
        self.packaged = {"stories260k": ROOT / "tests" / "data" / "stories260k", "tiny-moe": ROOT / "models" / "tiny-moe"}
        if witness:
            self.packaged["witness"] = Path(witness).resolve()
        self.large = {"SmolLM2": self.floats_of(Path(smollm).resolve())} if smollm else {}
        self.every = {**self.small, **self.packaged, **self.large}

    def floats_of(self, gguf):
        from quality_models import llama_from_gguf
        if not (self.work / "smollm2").exists():
            llama_from_gguf(self.mixtape, gguf, self.work / "smollm2")
        return self.work / "smollm2"

    # Programs.

    def ours(self, *argv):
        result = subprocess.run([str(word) for word in (self.mixtape, *argv)], capture_output=True,
                                stdin=subprocess.DEVNULL)
        if result.returncode not in (0, 3):  # 3: calibration was no gain
            raise RuntimeError(f"mixtape {argv}: {result.stderr.decode(errors='replace')[-500:]}")
        return result.stdout.decode(errors="replace")

    def theirs(self, program, *argv, until=r""):
        """Both streams. What it says last may be lost where it ends, unless `until` is found; it is then run again."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OMP_")}
        for _ in range(40):
            result = subprocess.run([str(word) for word in (self.llama / program, *argv)], capture_output=True,
                                    stdin=subprocess.DEVNULL, env=environment)
            said = [stream.decode(errors="replace") for stream in (result.stdout, result.stderr)]
            if result.returncode != 0:
                raise RuntimeError(f"{program} {argv}: {said[1][-500:]}")
            if re.search(until, said[0]) or re.search(until, said[1]):
                return said
        raise RuntimeError(f"{program} {argv}: did not say '{until}'")

    def new(self, name):
        path = self.work / name
        path.unlink(missing_ok=True)
        return path

    def gguf(self, model, kind):
        """The model's file of this type, written anew once a run."""
        path = self.work / f"{model}-{kind}.gguf"
        if path not in self.written:
            path.unlink(missing_ok=True)
            source = self.every.get(model) or self.words[model]
            if kind in BITS:
                self.ours("quantize", "-m", source, "-o", path, "--bits", BITS[kind], "--group-size", 32)
            elif kind in MIXES:
                self.ours("quantize", "-m", source, "-o", path, "--type", kind)
            else:
                self.ours("convert", "-m", source, "-o", path, "--floats", kind.lower())
            self.written.add(path)
        return path

    def kinds(self, model):
        return "F32", "F16", "BF16", *BITS, *(("q4_k_m",) if model in self.large else MIXES)

    def base(self, model, text, length, count=1 << 20, path=None):
        path = path or self.work / "base"
        path.unlink(missing_ok=True)
        self.ours("eval", "-m", model, "--text", text, "--length", length, "--max-tokens", count, "--dtype", "f32",
                  "--save-base", path)
        return path

    def their_base(self, file, text, length):
        path = self.new("their_base")
        self.theirs("llama-perplexity", "-m", file, "-f", text, "-c", length, "-b", max(length, 256),
                    "--kl-divergence-base", path, *EXACT)
        return path

    # Checks: each yields rows without the first two columns.

    def loads(self, model):
        for kind in self.kinds(model):
            _, log = self.theirs("llama-completion", "-m", self.gguf(model, kind), "-p", "Once", "-n", 1, "-no-cnv", "-v",
                                 "-t", 1, until="generate: n_ctx")
            warnings = [line for line in log.splitlines() if re.match(r"[\d.]+ [WE] ", line)
                        and not re.search("training context|trained on only|full capacity", line)]
            for line in warnings:
                print(line)
            yield kind, "", len(warnings), len(warnings), 0

    def greedy(self, model):
        for kind in ("F32", "F16"):
            file, total, same = self.gguf(model, kind), 0, 0
            for prompt in PROMPTS:
                mine = self.ours("generate", "-m", file, "--prompt", prompt, "-n", 64, "--temp", 0, "--dtype", "f32")
                mine = mine.removesuffix("\n")
                more = 16 if model in self.large else 576  # pieces: the last ones, 512 at most, may be lost
                said, _ = self.theirs("llama-completion", "-m", file, "-p", prompt, "-n", 64 + more, "-c", 1024,
                                      "--ignore-eos", "--temp", 0, "-no-cnv", *EXACT, until=f"(?s).{{{len(mine) + 1}}}")
                total += len(mine)
                same += len(os.path.commonprefix([mine, said.removeprefix(" ")]))
            yield kind, total, same, total - same, 0

    def chat(self, model):
        file, question = self.gguf(model, "F32"), "Why is the sky blue?"
        mine = self.ours("generate", "-m", file, "--chat", "--prompt", question, "-n", 48, "--temp", 0, "--dtype", "f32")
        mine = mine.removesuffix("\n")
        said, _ = self.theirs("llama-completion", "-m", file, "-p", question, "-n", 64, "--temp", 0, "-cnv", "-st", "--jinja",
                              *EXACT, until=f"(?s)assistant\n.{{{len(mine)}}}")
        same = len(os.path.commonprefix([mine, said.partition("assistant\n")[2]]))
        yield "F32", len(mine), same, len(mine) - same, 0

    def logits(self, model):
        length = 64 if model in self.small else 256
        text = self.ascii()
        kinds = {kind: self.gguf(model, kind) for kind in ("F32", "F16")}
        for kind, file in {**kinds, "F16, decoded": self.decoded(kinds["F16"])}.items():
            mine, theirs = (read_base(base(file, text, length)) for base in (self.base, self.their_base))
            # The first window of both is the same; later ones begin at other places where BOS goes before a text.
            assert (mine[0][0] == theirs[0][0]).all(), f"{model}: tokens differ"
            count = length - 1 - length // 2
            yield kind, "", "", log_probability_distance(mine, theirs, count), 1e-3

    def tokens(self, model):
        text, file = self.work / "text", self.gguf(model, "F32")
        text.write_text(self.ascii().read_text() if model in self.small else TEXT * 3)
        mine, said = read_base(self.base(file, text, 8))[0], read_base(self.their_base(file, text, 8))[0].reshape(-1)
        starts = 1 if (mine[:, 0] == said[0]).all() else 0
        mine, said = mine[:, starts:].reshape(-1), said[starts:]
        count = min(len(mine), len(said))
        yield "", count, count, int((mine[:count] != said[:count]).sum()), 0

    def ppl(self, model):
        length, windows = (512, 2) if model in self.large else (256, 16)
        base = self.work / "kl_base"
        self.base(self.every[model], self.texts / "wikitext2_test.txt", length, length * windows, base)
        for kind in self.kinds(model):
            file = self.gguf(model, kind)
            mine = self.our_distance(file, base)
            yield from self.distances(f"{kind}, as it runs", mine, self.their_distance(file, base, length))
            if kind != "F32":
                decoded = self.decoded(file)
                yield from self.distances(f"{kind}, decoded", mine, self.their_distance(decoded, base, length))

    def our_distance(self, file, base):
        report = self.new("report.json")
        self.ours("eval", "-m", file, "--base", base, "--dtype", "f32", "--json", report)
        report = json.loads(report.read_text())
        return report["result"]["perplexity"]["value"], report["result"]["kl"]["mean"]

    def their_distance(self, file, base, length):
        wanted = r"(?s)Mean PPL\(Q\) *: *([\d.]+).*Mean +KLD: *([-\d.]+)"
        said = self.theirs("llama-perplexity", "-m", file, "--kl-divergence", "--kl-divergence-base", base, "-c", length,
                           *EXACT, until=wanted)
        return [float(x) for x in re.search(wanted, said[0]).groups()]

    @staticmethod
    def distances(kind, mine, theirs):
        """Perplexities may be 0.2 % apart, KL 2 %, or 1e-6: their sixth decimal."""
        yield f"ppl, {kind}", round(mine[0], 5), round(theirs[0], 5), round(abs(theirs[0] / mine[0] - 1), 7), 0.002
        off = abs(theirs[1] - mine[1])
        yield f"kl, {kind}", round(mine[1], 6), theirs[1], round(off / max(mine[1], 5e-5), 5), 0.02

    def decoded(self, file):
        """By llama-quantize, as F32."""
        path = self.new("decoded.gguf")
        self.theirs("llama-quantize", "--allow-requantize", file, path, "F32", 2)
        return path

    def weights(self, model):
        text = self.stories(100 if model in self.large else 400)
        for bits in (4, 5):
            student, file = self.work / f"{model}-student{bits}", self.new("student.gguf")
            if not student.exists():
                self.ours("calibrate", "-m", self.every[model], "-o", student, "--bits", bits, "--group-size", 32,
                          "--text", text, "--length", 256, "--recipe", "fast", "--validation-rows", 2, "--report-rows", 2)
            self.ours("convert", "-m", student, "-o", file)
            mine, unheld = calibrated_weights(student)
            theirs = decoded_weights(self.decoded(file))
            differ = sum(int((w != theirs[name]).sum()) for name, w in mine.items())
            kind = f"{bits} bits, {unheld} scales and biases that f16 does not hold"
            yield kind, sum(w.size for w in mine.values()), len(mine), differ, 32 * unheld

    def imatrix(self, model):
        text = self.stories(50 if model in self.large else 100)
        mine, theirs, student = self.new("imatrix"), self.new("imatrix.gguf"), self.new("student.gguf")
        self.ours("calibrate", "-m", self.every[model], "-o", student, "--group-size", 32, "--text", text, "--length", 256,
                  "--recipe", "fast", "--validation-rows", 1, "--report-rows", 1, "--report-text",
                  self.texts / "wikitext2_test.txt", "--save-imatrix", mine)
        self.theirs("llama-imatrix", "-m", self.gguf(model, "F32"), "-f", text, "-c", 256, "-t", 1, "--parse-special",
                    "-o", theirs, "--output-format", "gguf")
        ours, said = importance(mine), importance(theirs)
        off = {name: float(np.abs(ours[name] - said[name]).sum() / said[name].sum()) for name in set(ours) & set(said)}
        theirs_only = set(said) - set(ours)
        yield "mean of weights", len(ours), len(said), round(sum(off.values()) / len(off), 5), 0.02
        yield "worst weight", len(ours), len(said), round(max(off.values()), 5), 0.05
        for kind in ("Q4_K_M", "Q4_1"):
            said = "\n".join(self.theirs("llama-quantize", "--imatrix", mine, self.gguf(model, "F32"),
                                         self.new("copy.gguf"), kind, 2, until="total time"))
            taken = int(re.search("have ([0-9]+) importance", said)[1])
            lacking = {name for name in theirs_only if not name.endswith("_inp.weight")}  # what calibrate left in float
            yield f"llama-quantize {kind}", len(ours), taken, said.count("did not find weights"), len(lacking)

    def seconds(self, model):
        source, file = self.gguf(model, "F32"), self.work / "timed.gguf"
        commands = {"Q4_1": ("quantize", "--bits", 4, "--group-size", 32), "F16": ("convert", "--floats", "f16")}
        for kind, argv in commands.items():
            best = np.full((2, 2), np.inf)  # [program, seconds and those of all cores]
            for _ in range(3):
                for i, run in enumerate((lambda: self.ours(argv[0], "-m", source, "-o", file, *argv[1:]),
                                         lambda: self.theirs("llama-quantize", "--pure", source, file, kind, 2))):
                    file.unlink(missing_ok=True)
                    best[i] = np.minimum(best[i], seconds_of(run))
            for name, (mine, theirs) in zip(("wall", "all cores"), best.T):
                yield f"{kind}, {name}", round(mine, 2), round(theirs, 2), round(mine / theirs, 3), 1.0

    # Texts.

    def ascii(self):
        text = self.work / "ascii.txt"
        content = (self.texts / "tinyshakespeare.txt").read_text()[:4000]
        text.write_text("".join(c for c in content if ord(c) < 128).strip())
        return text

    def stories(self, windows):
        text = self.work / f"stories{windows}.txt"
        text.write_text((self.texts / "tiny_stories.txt").read_text()[:500 * windows])
        return text

    def run(self):
        all_models = {**self.every, **self.words}
        checks = {"loads": all_models, "greedy": self.every, "chat": self.large, "logits": self.every, "tokens": all_models,
                  "ppl": {**self.packaged, **self.large}, "weights": {**self.packaged, **self.large},
                  "imatrix": {**self.packaged, **self.large}, "seconds": {**self.packaged, **self.large}}
        with open(self.out, "w", newline="") as f:
            writer = csv.writer(f, lineterminator="\n")
            writer.writerow(COLUMNS)
            for check, models in checks.items():
                for model in models:
                    if not re.search(self.wanted, f"{check}, {model}"):
                        continue
                    for kind, mine, theirs, difference, bound in getattr(self, check)(model):
                        holds = "yes" if difference <= bound else "no"
                        values = [check, model, kind, mine, theirs, difference, bound, holds]
                        writer.writerow(values)
                        f.flush()
                        print(*values, flush=True)


if __name__ == "__main__":
    Bench(*sys.argv[1:]).run()
