#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes an evaluation into docs/performance.md and, if it has a part for it, the README.md beside docs, and draws
docs/performance/*.svg, without measuring anything:

    python3 perf/evaluate/page.py docs/performance/evaluation.json docs

The pages' own text stays. Only what stands between two lines like these is written anew:

    <!-- evaluation: nodes begins -->
    <!-- evaluation: nodes ends -->

The same evaluation gives the same bytes, however often.
"""
import argparse
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import parts  # noqa: E402
import plots  # noqa: E402
from evaluation import Refused, check, read  # noqa: E402
from words import write_whole  # noqa: E402

MARKER = re.compile(r'^<!-- evaluation: ([\w-]+) (begins|ends) -->\n', re.MULTILINE)


def marker(name, word):
    return f'<!-- evaluation: {name} {word} -->\n'


def replaced(page, texts):
    """The page with each of the texts between its two markers, which must be there, once, in turn."""
    written, place, opened, seen = [], 0, None, []
    for found in MARKER.finditer(page):
        name, word = found.groups()
        if name not in texts:
            raise Refused(f'the page has a part "{name}", which no evaluation has; known are {", ".join(texts)}')
        if (word == 'begins') == (opened is not None) or (word == 'ends' and opened != name) or (
                word == 'begins' and name in seen):
            raise Refused(f'the page has "{marker(name, word).strip()}" out of turn')
        if word == 'begins':
            written.append(page[place:found.end()])
            opened = name
            seen.append(name)
        else:
            written.append(texts[name] and '\n' + texts[name].strip('\n') + '\n\n')
            place, opened = found.start(), None
    if opened is not None:
        raise Refused(f'the page lacks "{marker(opened, "ends").strip()}"')
    for name in texts:
        if name not in seen:
            raise Refused(f'the page lacks "{marker(name, "begins").strip()}"')
    return ''.join(written) + page[place:]


def as_read(evaluation):
    """As it would come from a file."""
    return check(json.loads(json.dumps(evaluation)))


def made(evaluation, page):
    """The page's new text, and picture's name -> its text, None for one that there is nothing to draw for."""
    evaluation = as_read(evaluation)
    pictures = plots.pictures(evaluation)
    return replaced(page, parts.texts(evaluation, pictures)), pictures


def made_readme(evaluation, text):
    """Its new text, or the same one if it has no such part."""
    has_part = any(found[1] == 'readme' for found in MARKER.finditer(text))
    return replaced(text, {'readme': parts.readme(as_read(evaluation))}) if has_part else text


def read_text(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def write(evaluation, docs_folder):
    """Rewrites docs_folder/performance.md, the README.md beside docs_folder, and docs_folder/performance/*.svg. What is
    refused writes nothing."""
    path, folder = os.path.join(docs_folder, 'performance.md'), os.path.join(docs_folder, 'performance')
    readme_path = os.path.join(docs_folder, os.pardir, 'README.md')
    page, pictures = made(evaluation, read_text(path))
    if os.path.exists(readme_path):
        write_whole(readme_path, made_readme(evaluation, read_text(readme_path)))
    os.makedirs(folder, exist_ok=True)
    for name, picture in pictures.items():
        picture_path = os.path.join(folder, name)
        if picture is not None:
            write_whole(picture_path, picture)
        elif os.path.exists(picture_path):
            os.unlink(picture_path)
    write_whole(path, page)


def main(words):
    parser = argparse.ArgumentParser(prog='perf/evaluate/page.py', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('evaluation', metavar='EVALUATION', help='what perf/evaluate/evaluate --json has written')
    parser.add_argument('docs', metavar='FOLDER', help='the one with performance.md')
    options = parser.parse_args(words)
    try:
        write(read(options.evaluation), options.docs)
    except (Refused, OSError) as problem:
        print(f'perf/evaluate/page.py: {problem}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
