#!/usr/bin/env python3
"""Serves a model with llama.cpp (from PyPI: xllamacpp) on loopback until SIGTERM: the independent engine of test_peer
and of scripts/compare_peers.py.

    peer.py MODEL.gguf PORT [-c TOKENS] [-t THREADS] [--n-parallel N]      TOKENS: of all sequences together
"""
import argparse
import signal
import threading

import xllamacpp


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('model')
    parser.add_argument('port', type=int)
    parser.add_argument('-c', '--ctx', type=int, default=4096)
    parser.add_argument('-t', '--threads', type=int, default=2)
    parser.add_argument('--n-parallel', type=int, default=1)
    args = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.hostnames, params.port = ['127.0.0.1'], args.port
    params.n_ctx, params.n_parallel, params.fit_params = args.ctx, args.n_parallel, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = xllamacpp.Server(params)  # Lives as long as this frame.
    ended.wait()
    del server


if __name__ == '__main__':
    main()
