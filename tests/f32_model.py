"""Writes a model's weights in float32: what its quantized weights mean exactly, without any engine's rounding.

    f32_model.py IN.gguf OUT.gguf
"""
import struct
import sys

import gguf
import numpy as np


def float32_copy(source, target):
    """The same keys, the same tensors, every weight dequantized as gguf-py defines it. About 4 bytes a weight."""
    reader = gguf.GGUFReader(source)
    keys = [field for name, field in reader.fields.items() if not name.startswith('GGUF.')]
    begin = min(field.offset for field in keys)
    end = max(field.offset + sum(part.nbytes for part in field.parts) for field in keys)
    tensors = reader.tensors
    infos, at = b'', 0
    for tensor in tensors:
        name = tensor.name.encode()
        infos += struct.pack('<Q', len(name)) + name + struct.pack('<I', len(tensor.shape))
        infos += struct.pack(f'<{len(tensor.shape)}Q', *(int(n) for n in tensor.shape)) + struct.pack('<IQ', 0, at)
        at += -(-int(tensor.n_elements) * 4 // reader.alignment) * reader.alignment
    with open(target, 'wb') as out:
        out.write(b'GGUF' + struct.pack('<IQQ', 3, len(tensors), len(keys)) + reader.data[begin:end].tobytes() + infos)
        out.write(bytes(-out.tell() % reader.alignment))
        for tensor in tensors:
            values = np.ascontiguousarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            out.write(values.tobytes())
            out.write(bytes(-out.tell() % reader.alignment))


if __name__ == '__main__':
    float32_copy(*sys.argv[1:3])
