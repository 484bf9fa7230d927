/**
 * A tenant sends texts that are made to take long to read, or to become much: Dockerfiles and their contexts.
 * Others notice nothing, and the server neither ends nor fills.
 *
 * Runs on the memory backend alone: the server itself is what reads them.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { layerOf, type TestEntry } from '../../server/src/host/images/testing/test-image.ts';
import { startTarget, type Target } from './support/target.ts';
import { watchServer } from './support/watch-server.ts';

const MiB = 1024 ** 2;
/** Below the largest Dockerfile. */
const LENGTH = MiB - 1024;
const BUILD_MS = 5_000;

const filled = (piece: string, length = LENGTH) => piece.repeat(Math.floor(length / piece.length));
const numbered = (make: (at: number) => string, length = LENGTH) => {
  let text = '';
  for (let at = 0; text.length < length; at++) text += make(at);
  return text;
};
/** As long and as deep as names in a context may be. */
const deep = filled(`${filled('a', 15)}/`, 4000);

const link = (name: string, target: string): TestEntry => ({ name, type: 'symlink', target });

interface Case {
  name: string;
  dockerfile: string;
  context?: () => TestEntry[];
}

const CASES: Case[] = [
  { name: 'a directive with many spaces', dockerfile: `# escape=x${filled(' ')}y\nFROM base` },
  { name: 'a line with many spaces', dockerfile: `FROM base\nRUN x${filled(' ')}y` },
  { name: 'lines that go on', dockerfile: `FROM base\nRUN ${filled('\\\n')}` },
  { name: 'quotes', dockerfile: `FROM base\nLABEL a=${filled(`"'`)}` },
  { name: 'here-documents that are announced', dockerfile: `FROM base\nRUN ${filled('<<A ')}` },
  { name: 'flags', dockerfile: `FROM base\nRUN ${filled('--a=b ')}` },
  { name: 'very many arguments', dockerfile: `FROM base\nARG ${numbered((at) => `a${at}=b `)}` },
  { name: 'very many variables', dockerfile: `FROM base\nENV ${numbered((at) => `a${at}=b `)}` },
  { name: 'very many labels', dockerfile: `FROM base\nLABEL ${numbered((at) => `a${at}=b `)}` },
  { name: 'very many arguments before FROM', dockerfile: `ARG ${numbered((at) => `a${at}=b `)}\nFROM base` },
  { name: 'ranges of ports', dockerfile: `FROM base\nEXPOSE ${filled('1-1001 ')}` },
  { name: 'volumes', dockerfile: `FROM base\nVOLUME ${numbered((at) => `/${at} `)}` },
  {
    name: 'labels with a long value each',
    dockerfile: `FROM base\nARG B=${filled('b', 100_000)}\nLABEL ${numbered((at) => `a${at}=$B `, 800_000)}`,
  },
  {
    name: 'variables that double',
    dockerfile: `FROM base\nENV A=aaaaaaaaaaaaaaaa\n${numbered(() => 'ENV A=$A$A\n', 20_000)}`,
  },
  {
    name: 'values that are searched for patterns',
    dockerfile: `FROM base\nARG A=${filled('a', 1000)}\nLABEL x=${filled('${A//*b/}', 900_000)}`,
  },
  {
    name: 'values that are cut by patterns',
    dockerfile: `FROM base\nARG A=${filled('a', 4000)}\nLABEL x=${filled(`\${A##${filled('*a', 200)}b}`, 900_000)}`,
  },
  {
    name: 'patterns of files that are left out',
    dockerfile: 'FROM base\nCOPY . /x',
    context: () => [
      { name: '.dockerignore', content: filled(`${filled('**/a*/', 1000)}b\n`, 32_000) },
      ...Array.from({ length: 200 }, (_, at) => ({ name: `${deep}${at}`, content: '' })),
    ],
  },
  {
    name: 'links through deep directories',
    dockerfile: 'FROM base\nCOPY l* /x/',
    context: () => [
      ...Array.from({ length: 39 }, (_, at) => link(`${deep}g${at}`, `/${deep}g${at + 1}`)),
      { name: `${deep}g39`, content: '' },
      ...Array.from({ length: 2000 }, (_, at) => link(`l${at}`, `${deep}g0`)),
    ],
  },
  {
    name: 'links with long targets',
    dockerfile: 'FROM base\nCOPY . /x',
    context: () => Array.from({ length: 4000 }, (_, at) => link(`l${at}`, filled(`x${at}`, 60_000))),
  },
  {
    name: 'an archive with a name of slashes',
    dockerfile: 'FROM base\nADD a.tar /x/',
    context: () => [
      { name: 'a.tar', content: layerOf([{ name: `a${filled('/', 900_000)}b`, content: '' }]) },
    ],
  },
];

describe('a Dockerfile', () => {
  let target: Target;
  beforeAll(async () => {
    target = await startTarget({ backend: 'memory' });
  }, 60_000);
  afterAll(() => target?.[Symbol.asyncDispose]());
  afterEach(() => target.requireAlive());

  it.each(CASES)('with $name holds nothing up', { timeout: 120_000 }, async ({ dockerfile, context }) => {
    const { alice } = target;
    let digest: string | undefined;
    if (context) {
      const sent = await alice.call('POST', '/v1/builds/contexts', {
        body: layerOf(context()),
        headers: { 'content-type': 'application/x-tar' },
      });
      expect(sent.status, sent.text).toBe(201);
      digest = sent.json.digest;
    }
    const { loopMs, grownBytes } = await watchServer(target, async () => {
      const { status, json, text } = await alice.call('POST', '/v1/builds', {
        body: {
          name: 'slow',
          dockerfile,
          timeoutMs: BUILD_MS,
          ...(digest !== undefined && { context: digest }),
        },
      });
      expect([201, 202, 400], text).toContain(status);
      if (status === 400) return;
      const { id } = json as { id: string };
      await expect
        .poll(async () => (await alice.call('GET', `/v1/builds/${id}`)).json?.state, {
          timeout: BUILD_MS + 20_000,
          interval: 100,
        })
        .not.toBe('building');
      const { json: done } = await alice.call('GET', `/v1/builds/${id}`);
      expect(done.failure?.code).not.toBe('internal');
    });
    expect(loopMs).toBeLessThan(500);
    expect(grownBytes).toBeLessThan(800 * MiB);
  });
});
