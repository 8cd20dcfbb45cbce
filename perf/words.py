# SPDX-License-Identifier: Apache-2.0
"""What words on a command line mean, for the programs of this folder: types of argparse."""
import argparse
import os
import pathlib
import re

SIZES = {'': 0, 'K': 10, 'M': 20, 'G': 30}
RATES = {'bit': 1, 'kbit': 10 ** 3, 'mbit': 10 ** 6, 'gbit': 10 ** 9}


def count(text):
    if not re.fullmatch(r'[1-9]\d{0,8}', text):
        raise argparse.ArgumentTypeError(f'"{text}" is no whole number of at least 1')
    return int(text)


def counts(text):
    return [count(word) for word in text.split(',')]


def size(text):
    """Bytes; K, M and G are powers of 1024."""
    found = re.fullmatch(r'(\d{1,15})([KMG]?)', text)
    if not found:
        raise argparse.ArgumentTypeError(f'"{text}" is no size, such as 64K or 16M')
    return int(found[1]) << SIZES[found[2]]


def sizes(text):
    return [size(word) for word in text.split(',') if word]


def rate(text):
    """Bits per second."""
    found = re.fullmatch(r'(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)', text.lower())
    bits = float(found[1]) * RATES[found[2]] if found else 0
    if not 8000 <= bits <= 1e12:
        raise argparse.ArgumentTypeError(f'"{text}" is no rate from 8kbit to 1000gbit, such as 200mbit or 1.5gbit')
    return int(bits)


def new_file(path):
    if not os.access(os.path.dirname(path) or '.', os.W_OK) or os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{path} can't be written")
    return pathlib.Path(path)
