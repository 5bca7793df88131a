#!/usr/bin/env python3
"""Serves a model with llama.cpp (from PyPI: xllamacpp) on loopback until SIGTERM: the independent engine of test_peer.

    peer.py MODEL.gguf PORT
"""
import signal
import sys
import threading

import xllamacpp


def main(model, port):
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames, params.port = ['127.0.0.1'], port
    params.n_ctx, params.n_parallel, params.fit_params = 4096, 1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = xllamacpp.Server(params)  # Lives as long as this frame.
    ended.wait()
    del server


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]))
