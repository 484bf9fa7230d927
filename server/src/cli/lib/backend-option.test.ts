import { Command } from 'commander';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { backendOption } from './backend-option.ts';
import type { Composition } from '../verb.ts';

const unused = () => Promise.reject(new Error('not here'));
const composition: Composition = {
  backends: ['local', 'docker'],
  clusterBackends: [],
  declarationsOf: unused,
  toYaml: unused,
  entry: '',
  openBackend: unused,
  surveyBackend: unused,
  asPlatform: unused,
};

function parse(...argv: string[]): string {
  const command = new Command()
    .exitOverride()
    .configureOutput({ writeErr: () => {} })
    .addOption(backendOption(composition, 'what'));
  return command.parse(argv, { from: 'user' }).opts<{ backend: string }>().backend;
}

afterEach(() => vi.unstubAllEnvs());

describe('--backend', () => {
  it('is one, or several in their order, from the flag, the environment, or by default', () => {
    vi.stubEnv('CAY_BACKEND', undefined);
    expect(parse()).toBe('local');
    expect(parse('--backend', 'docker, local')).toBe('docker,local');
    vi.stubEnv('CAY_BACKEND', 'local,docker');
    expect(parse()).toBe('local,docker');
    expect(parse('--backend', 'docker')).toBe('docker');
  });

  it.each(['moon', 'local,moon', '', ',', 'local,local'])('refuses %j', (text) => {
    expect(() => parse('--backend', text)).toThrow('--backend');
  });
});
