"""The witness's tokenizer: byte-level BPE of 8,192 tokens. usage: make_tokenizer.py TEXT DIR (needs `tokenizers`)"""
import json
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

text, out = sys.argv[1:]
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=8192, special_tokens=["<|endoftext|>"],
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tokenizer.train_from_iterator(open(text).read().split("\n\n")[::7], trainer)
tokenizer.save(out + "/tokenizer.json")
json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>",
           "model_max_length": 2048, "clean_up_tokenization_spaces": False},
          open(out + "/tokenizer_config.json", "w"))
