#!/usr/bin/env python3
"""Writes pretokenizers.golden: where each pre-tokenizer cuts a set of texts, by Hugging Face's `tokenizers` (PyPI).

    python3 make_pretokenizer_golden.py [TEXTS [SEED]] > pretokenizers.golden

The patterns are written here as the models' tokenizer.json files have them, apart from src/text/pretokenizer_rules.cc.
Characters that came after Unicode 14 are left out, since libraries differ in whether they know them.
"""

import random
import sys
import unicodedata

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST
QWEN2 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST
HEAD, TAIL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def o200k(suffix, digits, before="", minus="", after="/"):
    head, tail = HEAD[:-1] + minus + "]", TAIL[:-1] + minus + "]"
    return (
        rf"{before}[^\r\n\p{{L}}\p{{N}}]?{head}*{tail}+{suffix}|[^\r\n\p{{L}}\p{{N}}]?{head}+{tail}*{suffix}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n{after}]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


CASED = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿ\u0386Έ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
    "Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\u1f5f-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎ"
    "ↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
CJK = "[一-龥ࠀ-一가-\ud7ff]+"
KANA = "[一-龥\u3040-ゟ゠-ヿ]+"
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
)
FIRST, OTHER = r"\p{N}{1,3}", r"|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = ByteLevel(add_prefix_space=False, use_regex=True)
ONE_DIGIT = Digits(individual_digits=True)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
GROUPS = "[!-/:-~！-／：-～‘-‟\u3000-。]"
AFMOE = (
    "[一-鿿㐀-䶿\u8c48-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
    "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
YOUTU = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+"
JAIS2 = (
    CONTRACTION
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    + "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
    + r"|\s{1,2}(?!\S)|\s{1}"
)
RULES = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2_AS_REGEX := r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", r"\p{N}+", "[0-9][0-9][0-9]"],
    "gpt-2": [GPT2],
    "smollm": [ONE_DIGIT, GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [QWEN2],
    "qwen35": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + OTHER],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "deepseek-llm": ["[\r\n]", rf"\s?[{CASED}]+", rf"\s?{GROUPS}+", r"\s+$", CJK, r"\p{N}+"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, ONE_DIGIT],
    "deepseek-v3": [FIRST, KANA, DEEPSEEK + r"[\r\n]*" + OTHER],
    "spark2_5": [FIRST, KANA, DEEPSEEK + r"|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2_AS_REGEX, "[0-9][0-9][0-9]"],
    "bloom": [BLOOM],
    "viking": [BLOOM, ONE_DIGIT],
    "tekken": [o200k("", r"\p{N}")],
    "gpt-4o": [o200k(CONTRACTION + "?", r"\p{N}{1,3}")],
    "kimi-k2": [o200k(CONTRACTION + "?", r"\p{N}{1,3}", r"[\p{Han}]+|", r"&&[^\p{Han}]", "")],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "seed-coder": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}" + "\r\n" + "]+" + OTHER],
    "ufakzeka": [r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST],
    "minicpm5": [FIRST, CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+" + REST],
    "k2-horizon": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}|\p{M}|\u200C|\u200D)+|\p{N}{1,3}" + REST],
    "exaone-moe": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "jais-2": [JAIS2],
    "youtu": [YOUTU, o200k(CONTRACTION + "?", r"\p{N}")],
    "chameleon": ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", ONE_DIGIT, r"[\p{P}!-/:-@\[-`{-~]", GPT2_AS_REGEX],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", o200k(CONTRACTION + "?", r"\p{N}{1,3}")],
    "afmoe": [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))", AFMOE, DEEPSEEK + r"[\r\n]*" + OTHER],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "gemma4": [r"[^\n]+|[\n]+"],
}  # fmt: skip

FIXED = [
    "Hello world! Café déjà vu — 123 😊 Cafe\u0301 de\u0301ja\u0300 vu",
    "1 12 123 1234 12345 123456 1234567 x1234 1234x 1,234,567.89 ½Ⅷ٣٤٥٦ 12½",
    "I'LL we'll YOU'RE can't it's d'accord 'ſx 'S'T 're'RE' ''s",
    "\tif (x)\r\n\t\treturn;\r\n\r\n\r\n  // done   \n \n  \n   end  ",
    "HTTPServer camelCase XMLHttpRequest ABCdef漢字ABC ǅungla ʰʰAAA ÉáB á",
    "漢字かな交じり文、テスト。「はい」 한국어 ㅋㅋㅋ 〇一二三 ⺀⽇ 々〻 ㄅㄆㄇ",
    "नमस्ते दुनिया। ภาษาไทย ကမ္ဘာ ខ្មែរ أهلا، بالعالم ۔",
    "a\u200cb\u200dc \u200d 👨‍👩‍👧‍👦 🏳️‍🌈 x\ufe0f",
    "<sentinel:12> IMGIMGABCZ <|im_start|>a/b//\n/c\n\n\\x `code` $1+2=3$ ~^|",
    " " * 70 + "x" + " " * 20 + "\u3000\u2003\u00a0\u0085\u180e y\u2028z  ",
]
WORDS = (
    "a b c the The THE hello ABC aB Ab iPhone I's we'LL don't x' 1 23 456 7890 12345678 ½ Ⅷ ٣ ۴۵ é e\u0301 ñ Ω \u2126 ſ ß ǅ ʰ ª "
    "漢 字 漢字 かな カナ ｶﾅ 한국 ㅋ ㄅ 〇 々 ⺀ ⽇ न म् स्ते ا ل ไ ท က ខ 😊 👨‍👩‍👧 \u200c \u200d \u0300 \u0903 \ufe0f Ⓐ _ - -- -> ... ! ? !? , ; : / // \\ ( ) [ ] "
    "{ } < > = + * & ^ % $ # @ ~ | ` \" ' '' 's 'S 't 'll 'LL 're 'ſ 。 ， 、 । ۔ ، … — “ ” ‘ ’ ！ ？ ～ « » € © \x00 \x01 \x7f \xad \ufffd \uffff 𝔘 𐐀 𐐨 \U000e0067 "
    "<s> </s> <|endoftext|>"
).split(" ")
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\n", "\n\n", "\r\n", "\r", "\t", "\x0b", "\x0c", "\u00a0", "\u2003", "\u3000", "\u180e", "\u0085", "\u2028"]


def random_text(rng, parts):
    out = ""
    for _ in range(parts):
        kind = rng.random()
        if kind < 0.62:
            out += rng.choice(WORDS)
        elif kind < 0.95:
            out += rng.choice(SPACES) * (rng.randrange(1, 4) if rng.random() < 0.1 else 1)
        else:
            c = chr(rng.choice([rng.randrange(0x300), rng.randrange(0x3000), rng.randrange(0x110000)]))
            if unicodedata.category(c) not in ("Cn", "Cs"):
                out += c
    return out


def splitter(steps):
    parts = [Split(Regex(s), "isolated") if isinstance(s, str) else s for s in steps]
    return parts[0] if len(parts) == 1 else Sequence(parts)


def lengths(pre, text):
    """Byte lengths of the words."""
    out = []
    done = 0
    for _, (begin, end) in pre.pre_tokenize_str(text):
        assert begin == done, (text, begin, done)
        out.append(len(text[begin:end].encode()))
        done = end
    assert done == len(text)
    return out


def escaped(text):
    plain = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(
        plain.get(c) or (c if c == " " or unicodedata.category(c)[0] in "LNPS" else f"\\x{{{ord(c):X}}}") for c in text
    )


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    texts = FIXED + [random_text(rng, rng.randrange(1, 40)) for _ in range(count)]
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    for text in texts:
        print("text", escaped(text))
    for name, steps in RULES.items():
        pre = splitter(steps)
        print("rule", name)
        for text in texts:
            print(*lengths(pre, text))


main()
