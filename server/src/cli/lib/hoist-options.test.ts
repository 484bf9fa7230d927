import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { hoistOptions } from './hoist-options.ts';

const command = new Command('exec')
  .option('--data <dir>')
  .option('-e, --env <pair>')
  .option('-i, --interactive')
  .option('-t, --tty');
const hoist = (line: string) => hoistOptions(command, line.split(' ')).join(' ');

describe('hoistOptions()', () => {
  it.each([
    ['box ls', 'box ls'],
    ['box --data /x -- ls --data y', '--data /x box -- ls --data y'],
    ['-it box --data=/x ls -la', '-it --data=/x box ls -la'],
    ['-e A=b box -e C=d -i sh -e', '-e A=b -e C=d -i box sh -e'],
    ['-eA=b box sh', '-eA=b box sh'],
    ['-ie A=b box sh', '-ie A=b box sh'],
    ['box -- --data x', 'box -- --data x'],
    ['-- box ls', '-- box ls'],
    ['box --data', '--data box'],
  ])('%s becomes %s', (line, hoisted) => {
    expect(hoist(line)).toBe(hoisted);
  });
});
