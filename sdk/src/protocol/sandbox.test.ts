import { describe, expect, it } from 'vitest';
import { CreateSandboxSchema, UpdateSandboxSchema } from './sandbox.ts';

describe('UpdateSandboxSchema', () => {
  it('leaves limits that were not named as they are', () => {
    expect(UpdateSandboxSchema.parse({ limits: { cpus: 1 } })).toEqual({ limits: { cpus: 1 } });
  });

  it('refuses a limit that cannot be changed', () => {
    expect(UpdateSandboxSchema.safeParse({ limits: { openFiles: 100 } }).success).toBe(false);
  });
});

describe('CreateSandboxSchema', () => {
  it('tells limits that were asked for from those that were not', () => {
    expect(CreateSandboxSchema.parse({ limits: { pids: 100 } }).limits).toEqual({ pids: 100 });
    expect(CreateSandboxSchema.parse({}).limits).toEqual({});
  });
});
