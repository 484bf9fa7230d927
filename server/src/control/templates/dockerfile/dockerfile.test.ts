import { isCayError } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { nameValues } from './arguments.ts';
import { expandWord } from './expand-word.ts';
import { parseDockerfile } from './parse-dockerfile.ts';
import { planStages } from './plan-stages.ts';

const parsed = (text: string) => parseDockerfile(text).instructions;
const plan = (text: string, options: Partial<Parameters<typeof planStages>[1]> = {}) =>
  planStages(parseDockerfile(text), { args: {}, architecture: 'amd64', ...options });

describe('a Dockerfile', () => {
  it('is instructions with flags', () => {
    expect(parsed('from a\nCOPY --from=x --chown=1:2 "a b" /c')).toEqual([
      { name: 'FROM', flags: [], rest: 'a', heredocs: [], line: 1 },
      {
        name: 'COPY',
        flags: [
          { name: 'from', value: 'x' },
          { name: 'chown', value: '1:2' },
        ],
        rest: '"a b" /c',
        heredocs: [],
        line: 2,
      },
    ]);
  });

  it('joins continued lines, without comments', () => {
    expect(parsed('RUN a \\\n# no\n  b \\\n\n c\nRUN d \\\\\nRUN e')).toMatchObject([
      { rest: 'a   b  c', line: 1 },
      { rest: 'd \\\\', line: 6 },
      { rest: 'e', line: 7 },
    ]);
    expect(parsed('# escape=`\nRUN a `\n b\\')).toMatchObject([{ rest: 'a  b\\' }]);
  });

  it('reads directives at its top alone', () => {
    expect(parseDockerfile('# syntax=docker/dockerfile:1\n# escape=`\nFROM a')).toMatchObject({
      escape: '`',
      syntax: 'docker/dockerfile:1',
    });
    expect(parseDockerfile('# other\n# escape=`\nFROM a').escape).toBe('\\');
    expect(() => parseDockerfile('# escape=x\nFROM a')).toThrow('line 1');
  });

  it('has here-documents', () => {
    expect(parsed('RUN <<EOF\none\n  two\nEOF\nCOPY <<-"A" <<B /t/\n\tx $Y\n\tA\nb\nB\nRUN c')).toMatchObject(
      [
        { heredocs: [{ name: 'EOF', content: 'one\n  two\n', expands: true }] },
        {
          heredocs: [
            { name: 'A', content: 'x $Y\n', expands: false },
            { name: 'B', content: 'b\n', expands: true },
          ],
        },
        { rest: 'c', line: 10 },
      ],
    );
    expect(() => parsed('RUN <<EOF\nnever')).toThrow('"EOF" never ends');
    expect(parsed('CMD cat <<EOF')).toMatchObject([{ heredocs: [] }]);
  });

  it('says what is wrong, and where', () => {
    expect(() => parsed('FROM a\nRUNN b')).toThrow('Dockerfile line 2: "RUNN" is no instruction');
    expect(() => parsed('')).toThrow('no instruction');
    expect(() => parsed('FROM a\0')).toThrow('NUL');
    expect(() => plan('RUN a')).toThrow('RUN stands before FROM');
    expect(() => plan('FROM a AS')).toThrow('line 1');
    expect(() => plan('ARG X\nFROM $X')).toThrow('names nothing');
    expect(() => plan('FROM a', { target: 'none' })).toThrow('no stage "none"');
    expect(() => plan('FROM --platform=linux/arm64 a')).toThrow('cannot be built here');
  });

  it('leaves out stages that the target does not need', () => {
    const text =
      'FROM a AS one\nFROM b AS two\nFROM one AS three\nCOPY --from=0 /x /x\nFROM c\nRUN --mount=type=bind,from=two,target=/t x';
    expect(plan(text).order.map(({ index }) => index)).toEqual([1, 3]);
    expect(plan(text, { target: 'THREE' }).order.map(({ index }) => index)).toEqual([0, 2]);
    expect(plan(text, { target: '1' }).order.map(({ index }) => index)).toEqual([1]);
  });

  it('expands FROM by arguments before it', () => {
    expect(plan('ARG V=1\nFROM a:${V}-${TARGETARCH}', { args: { V: '2' } }).stages[0]!.from).toEqual({
      text: 'a:2-amd64',
    });
    expect(plan('FROM a', { args: { LOST: '1' } }).notes).toEqual(['no ARG takes the build argument LOST']);
  });
});

describe('variables', () => {
  const values: Record<string, string> = { A: 'a', EMPTY: '', PATH: '/usr/bin:/bin', F: 'dir/file.tar.gz' };
  const expand = (word: string) => expandWord(word, { value: (name) => values[name], escape: '\\' });

  it.each([
    ['$A${A}', 'aa'],
    ['$', '$'],
    ['$NONE.', '.'],
    ['\\$A', '$A'],
    ["'$A'", '$A'],
    ['"$A \\" \\x"', 'a " \\x'],
    ['${NONE:-x}${EMPTY:-y}${EMPTY-z}', 'xy'],
    ['${A:+x}${EMPTY:+y}${EMPTY+z}${NONE+n}', 'xz'],
    ['${NONE:-${A}$A}', 'aa'],
    ['${F#*/}', 'file.tar.gz'],
    ['${F##*.}', 'gz'],
    ['${F%.*}', 'dir/file.tar'],
    ['${F%%.*}', 'dir/file'],
    ['${PATH/bin/x}', '/usr/x:/bin'],
    ['${PATH//bin/x}', '/usr/x:/x'],
    ['${A:?unused}', 'a'],
  ])('%s', (word, expected) => expect(expand(word)).toBe(expected));

  it('refuses what has no end or no meaning', () => {
    for (const word of ['${A', '${', '${}', '"a', "'a", '${A!b}', '${NONE:?not there}'])
      expect(() => expand(word)).toThrow(Error);
    expect(() => expand('${NONE:?not there}')).toThrow('NONE: not there');
    expect(() => expand('${A:-'.repeat(100) + '}'.repeat(100))).toThrow('too deeply');
  });

  it('have one form with and one without "="', () => {
    expect(nameValues('A=1 B="x y" C=a\\ b', '\\')).toEqual([
      { name: 'A', value: '1' },
      { name: 'B', value: '"x y"' },
      { name: 'C', value: 'a\\ b' },
    ]);
    expect(nameValues('A one  two', '\\')).toEqual([{ name: 'A', value: 'one  two' }]);
    expect(() => nameValues('A=1 B', '\\')).toThrow('needs "="');
    expect(() => nameValues('=1', '\\')).toThrow('no name');
  });
});

describe('hostile Dockerfiles', () => {
  const PIECES = [
    'FROM a',
    'FROM scratch AS b',
    'RUN ',
    'COPY --from=0 ',
    'ENV ',
    'ARG X',
    '--',
    '--mount=',
    '<<EOF',
    'EOF',
    '\n',
    '\n',
    '\n',
    '\\',
    '\\\n',
    '"',
    "'",
    '$',
    '${',
    '}',
    ':-',
    '//',
    '[',
    ']',
    '["x"]',
    '# ',
    '# escape=`\n',
    '\t',
    ' ',
    '\0',
    '\uFEFF',
    'é',
    '🙂',
    '<<-',
    '=',
    '%%',
    '*',
  ];

  /** The same sequence for the same seed. */
  function random(seed: number): () => number {
    let state = seed;
    return () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state / 2 ** 32;
    };
  }

  it('are read or refused, and nothing else', { timeout: 60_000 }, () => {
    const next = random(20_261_118);
    let read = 0;
    for (let round = 0; round < 5000; round++) {
      const length = 1 + Math.floor(next() * 30);
      const text =
        (next() < 0.5 ? 'FROM a\n' : '') +
        Array.from({ length }, () => PIECES[Math.floor(next() * PIECES.length)]).join('');
      try {
        for (const { rest } of plan(text).stages.flatMap(({ instructions }) => instructions)) {
          try {
            expect(expandWord(rest, { value: () => 'v', escape: '\\' }).length).toBeLessThanOrEqual(
              256 * 1024,
            );
          } catch (error) {
            if (!(error instanceof Error) || error.constructor !== Error) throw error;
          }
        }
        read++;
      } catch (error) {
        if (!isCayError(error, 'invalid_argument'))
          throw new Error(`round ${round}: ${JSON.stringify(text)}`, { cause: error });
      }
    }
    expect(read).toBeGreaterThan(100);
  });

  it('take time in proportion to their size', { timeout: 60_000 }, () => {
    const began = performance.now();
    const mib = 1024 * 1024 - 100;
    for (const text of [
      `FROM a\nRUN ${'\\\n'.repeat(mib / 2)}x`,
      `FROM a\nRUN ${'"'.repeat(mib)}`,
      `FROM a\nENV ${'a=b '.repeat(mib / 4)}`,
      `FROM a\nRUN ${'--a '.repeat(mib / 4)}`,
      `FROM a\nCOPY ${'<<E '.repeat(mib / 4)}`,
    ]) {
      try {
        plan(text);
      } catch (error) {
        if (!isCayError(error, 'invalid_argument')) throw error;
      }
    }
    expect(performance.now() - began).toBeLessThan(15_000);
    expect(() => plan(`FROM a\n${'RUN x\n'.repeat(5000)}`)).toThrow('more than 2000 instructions');
    expect(() => plan(' '.repeat(2 * mib))).toThrow('larger than');
  });
});
