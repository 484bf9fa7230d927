/** The kept results as a page of the documentation. */
import type { Figure, Kept } from './compare.ts';

const BAR = 24;

export function keptPage({ environment, figures }: Kept): string {
  const sections = Map.groupBy(figures, ({ key }) => key.split(':')[0]!);
  const machine = Object.entries(environment).map(([name, value]) => `| ${name} | ${value} |`);
  return [
    '# Benchmarks',
    '',
    'Medians of several runs of `npm run bench -- --runs=5 --keep`, which writes this page, with the lowest and the highest run.',
    'Nothing else ran on the machine.',
    'The method, and where the time goes, is in [performance](../performance.md).',
    '',
    '| machine | |',
    '|---|---|',
    ...machine,
    '',
    '## Beside docker and the bare runtimes',
    'Two more blocks of a bar are twice the time.',
    '',
    '```text',
    ...comparison(figures),
    '```',
    ...[...sections].flatMap(([section, all]) => [
      '',
      `## ${section}`,
      '| measure | median | lowest to highest | runs | aim | |',
      '|---|---|---|---|---|---|',
      ...all.map(row),
    ]),
    '',
  ].join('\n');
}

function row({ key, unit, better, median, lowest, highest, runs, aim }: Figure): string {
  const what = key.slice(key.indexOf(':') + 2).replaceAll('|', '\\|');
  const met = aim !== undefined && (better === 'less' ? median <= aim : median >= aim);
  const goal = aim === undefined ? '' : `${better === 'less' ? '≤' : '≥'} ${short(aim)}`;
  const verdict = aim === undefined ? '' : met ? 'met' : 'missed';
  return `| ${what} | ${short(median)} ${unit} | ${short(lowest)}–${short(highest)} | ${runs} | ${goal} | ${verdict} |`;
}

/** Milliseconds of the same act by each, with bars on a logarithmic scale. */
function comparison(figures: readonly Figure[]): string[] {
  const groups: Record<string, string[]> = {
    'a command in a running sandbox': [
      'exec: docker exec true',
      'exec: exec true, runc',
      'exec: exec true, runsc',
    ],
    'create and first command': [
      'create: docker run true',
      'create: runc run true',
      'create: create + first exec, cold, runc',
      'create: create + first exec, warm, runc',
      'create: runsc run true',
      'create: create + first exec, cold, runsc',
      'create: create + first exec, warm, runsc',
    ],
  };
  const byKey = new Map(figures.map((figure) => [figure.key, figure]));
  return Object.entries(groups).flatMap(([title, keys]) => {
    const found = keys.flatMap((key) => byKey.get(key) ?? []);
    const smallest = Math.min(...found.map(({ median }) => median));
    const lines = found.map(({ key, median }) => {
      const bar = '█'.repeat(Math.min(BAR, 1 + Math.round(2 * Math.log2(median / smallest))));
      return `  ${key.slice(key.indexOf(':') + 2).padEnd(36)} ${`${short(median)} ms`.padStart(9)}  ${bar}`;
    });
    return found.length === 0 ? [] : [title, ...lines];
  });
}

function short(value: number): string {
  return value >= 10 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(2);
}
