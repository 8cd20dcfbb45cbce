# SPDX-License-Identifier: Apache-2.0
"""A header as doxygen wants it: doxygen_filter.py HEADER. The headers are written for an editor, and stay so.

    the comment at the top       a group of its own, which the header's functions are in; matrixshard.h's: the main page
    paragraphs that are indented shown as they stand: tables, drawings
    Threads: ..., Since 0.1.     paragraphs of their own
    /* Words. ... */             what a header tells apart from its declarations: joins the group
    a declaration right below    is described by the comment of the one above
"""
import os
import re
import sys

FRONT = re.compile(r'\A/\* SPDX[^\n]*\n/\*\*\n(.*?)\n \*/\n', re.S)
COMMENT = re.compile(r'/\*\*(?!<)(.*?)\*/', re.S)
GUARD = re.compile(r'^#(?:ifndef|define) MATRIXSHARD_\w+_H\n|^#endif /\* MATRIXSHARD_\w+ \*/\n', re.M)
TOLD_APART = re.compile(r'^/\*\n((?: \*[^\n]*\n)+) \*/\n', re.M)
SIBLING = re.compile(r'^(MXS_API [^\n]*?\b(mxs_\w+)\((?:[^;]*)\);\n)(?=MXS_API [^;]*\);\n)', re.M)


def text_of(comment):
    return re.sub(r'^ \*(?: |$)', '', comment.rstrip(), flags=re.M)


def shown_as_they_stand(text):
    """Indented paragraphs after an empty line, until text begins again at the margin."""
    return re.sub(r'(?<=\n\n)((?:  [^\n]*\n|\n(?=  ))+)', r'@verbatim\n\1@endverbatim\n', text + '\n').rstrip('\n')


def tagged(text):
    """Threads and since as doxygen's paragraphs."""
    text = re.sub(r'(?<![\w.])Threads:\s+((?:(?!Since 0|@).)+?)(?=\s*(?:Since \d|@|\Z))', r'\n\n@par Threads\n\1\n',
                  text, flags=re.S)
    return re.sub(r'(?<!\w)Since (\d+\.\d+)\.', r'\n\n@since \1\n', text)


def comment_of(text, tags=''):
    return f'/** {tags}\n{shown_as_they_stand(text)}\n */\n'


def described(found):
    """One comment of a declaration."""
    return comment_of(tagged(text_of(found[1]).strip())).rstrip('\n')


def filtered(name, text):
    front = FRONT.match(text)
    story, body = text_of(front[1]), GUARD.sub('', text[front.end():])
    if name == 'matrixshard.h':
        headers = ', '.join('@ref ' + header for header in re.findall(r'"matrixshard/(\w+)\.h"', body))
        return comment_of(f'{story}\n\n@par Headers\n{headers}', '@mainpage matrixshard') + body
    group = name.removesuffix('.h')
    siblings = 1
    while siblings:
        body, siblings = SIBLING.subn(r'\1/** @copydoc \2 */\n', body)
    body = COMMENT.sub(described, body)
    story = '\n\n'.join([story, *map(text_of, TOLD_APART.findall(body))])
    return ''.join([f'/** @file matrixshard/{name}\n@ref {group} */\n', comment_of(story, f'@defgroup {group} {name}'),
                    f'/** @addtogroup {group}\n@{{ */\n', body, '/** @} */\n'])


def main(path):
    with open(path, encoding='utf-8') as file:
        sys.stdout.write(filtered(os.path.basename(path), file.read()))


if __name__ == '__main__':
    main(sys.argv[1])
