import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import type { Policy } from '../../policy/policy.ts';
import { policyFlags, policyIn, policyOf, withPolicyOptions, type PolicyOptions } from './policy-options.ts';

function parsed(flags: string[], env: Record<string, string> = {}): PolicyOptions {
  const before = { ...process.env };
  Object.assign(process.env, env);
  try {
    const command = withPolicyOptions(new Command('up').option('--runtime <name>')).exitOverride();
    return command.parse(flags, { from: 'user' }).opts<PolicyOptions>();
  } finally {
    for (const name of Object.keys(env)) if (before[name] === undefined) delete process.env[name];
  }
}

const policy = (...flags: string[]): Policy => policyOf(parsed(flags));

describe('the flags of up for what may be asked for', () => {
  it('take lists with commas and repeated, and limits as people write them', () => {
    const made = policy(
      '--allow-runtime',
      'runsc, runc',
      '--allow-runtime',
      'crun',
      '--allow-image',
      'python:*',
      '--max-limit',
      'memory=8g,timeout=1h,commands=16,disk=none',
    );
    expect(made.runtimes).toEqual(['runsc', 'runc', 'crun']);
    expect(made.images).toEqual(['python:*']);
    expect(made.maxima).toMatchObject({
      memoryBytes: 8 * 1024 ** 3,
      timeoutMs: 3_600_000,
      commands: 16,
      diskBytes: null,
      pids: 8192,
    });
    expect(policy('--default-limit', 'cpus=0.5,open-files=1024').defaults).toMatchObject({
      cpus: 0.5,
      openFiles: 1024,
    });
  });

  it('are given on to a server in the background', () => {
    const flags = [
      '--allow-runtime',
      'runc,process',
      '--allow-process',
      '--allow-image',
      'a:*',
      '--default-limit',
      'cpus=1',
      '--max-limit',
      'pids=512,cpus=2',
    ];
    expect(policyOf(parsed(policyFlags(parsed(flags))))).toEqual(policyOf(parsed(flags)));
    expect(policyFlags(parsed([]))).toEqual([]);
  });

  it('come from the environment as well, where an empty value is none', () => {
    const env = {
      CAY_ALLOW_RUNTIME: 'gvisor',
      CAY_MAX_LIMIT: 'pids=64',
      CAY_ALLOW_IMAGE: '',
      CAY_DEFAULT_LIMIT: '',
    };
    expect(policyOf(parsed([], env))).toMatchObject({
      runtimes: ['gvisor'],
      maxima: { pids: 64 },
      defaults: { pids: 64 },
    });
    expect(policyIn(env)).toEqual(policyOf(parsed([], env)));
    expect(policyIn({})).not.toHaveProperty('images');
  });

  it.each([
    [['--max-limit', 'pids'], 'pids'],
    [['--max-limit', 'processes=3'], 'processes=3'],
    [['--max-limit', 'pids=many'], 'pids=many'],
    [['--max-limit', 'pids=1'], 'pids=1'],
    [['--max-limit', 'memory=1'], 'memory=1'],
    [['--max-limit', 'commands=0'], 'commands=0'],
    [['--max-limit', 'commands=none'], 'commands=none'],
    [['--max-limit', 'open-files=none'], 'open-files=none'],
    [['--default-limit', 'commands=3'], 'commands'],
    [['--default-limit', 'pids=100', '--max-limit', 'pids=50'], 'pids'],
    [['--allow-image', 'py thon'], 'py thon'],
    [['--allow-runtime', '../runc'], '../runc'],
    [['--allow-runtime', 'process'], 'process'],
    [['--allow-process'], 'process'],
    [['--allow-runtime', 'runc,process', '--allow-process', '--runtime', 'process'], 'process'],
    [['--allow-runtime', 'runsc', '--runtime', 'runc'], 'runc'],
  ])('refuse %j at once', (flags, named) => {
    expect(() => policy(...flags)).toThrow(named);
  });
});
