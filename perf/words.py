# SPDX-License-Identifier: Apache-2.0
"""What words on a command line mean, for the programs of this folder: types of argparse."""
import argparse
import os
import pathlib
import re
import shutil

SIZES = {'': 0, 'K': 10, 'M': 20, 'G': 30}
RATES = {'bit': 1, 'kbit': 10 ** 3, 'mbit': 10 ** 6, 'gbit': 10 ** 9}


def count(text):
    if not re.fullmatch(r'[1-9]\d{0,8}', text):
        raise argparse.ArgumentTypeError(f'"{text}" is no whole number of at least 1')
    return int(text)


def counts(text):
    """Each once."""
    return list(dict.fromkeys(count(word) for word in text.split(',')))


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
    """Before hours go by: can it be written, there or anew? os.access('') is no."""
    place = path if os.path.exists(path) else path and (os.path.dirname(path) or '.')
    if not os.access(place, os.W_OK) or os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{path} can't be written")
    return pathlib.Path(path)


def write_whole(path, text):
    """All of it or, on a full disk, what stood there before. What is no file, such as /dev/stdout, is written to."""
    place = os.path.realpath(path)
    if os.path.exists(place) and not os.path.isfile(place):
        pathlib.Path(place).write_text(text, encoding='utf-8')
        return
    part = f'{place}.part'
    try:
        with open(part, 'w', encoding='utf-8', newline='\n') as file:
            file.write(text)
        if os.path.exists(place):
            shutil.copymode(place, part)
        os.replace(part, place)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise
