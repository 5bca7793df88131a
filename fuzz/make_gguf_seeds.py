#!/usr/bin/env python3
"""Writes the seeds of gguf_fuzz: small sound files that use every value type, every version and most tensor types.

    make_gguf_seeds.py [FOLDER]      default: gguf/ beside this file
"""
import pathlib
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: 'B', I8: 'b', U16: 'H', I16: 'h', U32: 'I', I32: 'i', F32: 'f', BOOL: '?', U64: 'Q', I64: 'q', F64: 'd'}
BLOCKS = {  # Tensor type: values and bytes of a block.
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110),
    12: (256, 144), 13: (256, 176), 14: (256, 210), 16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
    21: (256, 110), 22: (256, 82), 23: (256, 136), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17)}


def string(text):
    return struct.pack('<Q', len(text.encode())) + text.encode()


def value(kind, content):
    if kind == STRING:
        return string(content)
    if kind == ARRAY:
        item, items = content
        return struct.pack('<IQ', item, len(items)) + b''.join(value(item, i) for i in items)
    return struct.pack('<' + PACK[kind], content)


def gguf(keys, tensors, version=3, align=32):
    """keys: [(name, kind, content)], tensors: [(name, shape, type)]."""
    head = b'GGUF' + struct.pack('<IQQ', version, len(tensors), len(keys))
    for name, kind, content in keys:
        head += string(name) + struct.pack('<I', kind) + value(kind, content)
    data = b''
    for name, shape, kind in tensors:
        count = 1
        for n in shape:
            count *= n
        values, size = BLOCKS[kind]
        head += string(name) + struct.pack(f'<I{len(shape)}QIQ', len(shape), *shape, kind, len(data))
        data += bytes((i * 37 + kind) & 127 for i in range(count // values * size))
        data += bytes(-len(data) % align)
    return head + bytes(-len(head) % align) + data


def seeds():
    kinds = [('a', U8, 200), ('b', I8, -3), ('c', U16, 60000), ('d', I16, -300), ('e', U32, 7), ('f', I32, -7), ('g', F32, 1.5),
             ('h', BOOL, True), ('i', STRING, 'text \u00e9'), ('j', U64, 1 << 40), ('k', I64, -1), ('l', F64, 0.25)]
    yield 'empty', gguf([], [])
    yield 'v2', gguf([('general.architecture', STRING, 'llama')], [('t', [4], 0)], version=2)
    yield 'values', gguf(kinds, [])
    yield 'arrays', gguf([(name * 2, ARRAY, (kind, [content] * 3)) for name, kind, content in kinds], [])
    yield 'nested', gguf([('n', ARRAY, (ARRAY, [(U8, [1, 2]), (STRING, ['x', ''])])), ('none', ARRAY, (STRING, []))], [])
    yield 'aligned64', gguf([('general.alignment', U32, 64)], [('t0', [3, 2], 0), ('t1', [32], 8)], align=64)
    yield 'split', gguf([('split.no', U16, 0), ('split.count', U16, 1), ('split.tensors.count', I32, 1)], [('t', [2, 2], 1)])
    yield 'model', gguf(
        [('general.architecture', STRING, 'llama'), ('general.name', STRING, 'seed'), ('llama.block_count', U32, 1),
         ('llama.context_length', U32, 64), ('llama.embedding_length', U32, 32), ('llama.feed_forward_length', U32, 32),
         ('llama.attention.head_count', U32, 1), ('llama.attention.layer_norm_rms_epsilon', F32, 1e-5),
         ('tokenizer.ggml.model', STRING, 'gpt2'), ('tokenizer.ggml.tokens', ARRAY, (STRING, ['a', 'b', 'ab'])),
         ('tokenizer.ggml.token_type', ARRAY, (I32, [1, 1, 1])), ('tokenizer.ggml.merges', ARRAY, (STRING, ['a b']))],
        [('token_embd.weight', [32, 3], 2), ('output_norm.weight', [32], 0), ('blk.0.attn_q.weight', [32, 32], 8)])
    for kind, (values, _) in BLOCKS.items():
        yield f'type{kind}', gguf([], [('t', [values, 2], kind)])


if __name__ == '__main__':
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / 'gguf'
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in seeds():
        (folder / name).write_bytes(content)
