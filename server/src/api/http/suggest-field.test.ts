import {
  CreateSandboxSchema,
  ExecBodySchema,
  SocketOpenSchema,
  UpdateSandboxSchema,
} from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import type { z } from 'zod';
import { invalid } from './error-answer.ts';

function hint(schema: z.ZodType, value: unknown): string | undefined {
  const { error } = schema.safeParse(value);
  return error && invalid(error, 'body', schema).hint;
}

describe('a refused field', () => {
  it.each([
    [{ argv: ['true'], cwd: '/tmp' }, 'workdir'],
    [{ argv: ['true'], timeout: 5 }, 'timeoutMs'],
    [{ argv: ['true'], wrokdir: '/tmp' }, 'workdir'],
    [{ argv: ['true'], envs: {} }, 'env'],
  ])('of a command is named as it is here: %j', (body, field) => {
    expect(hint(ExecBodySchema, body)).toBe(`did you mean "${field}"?`);
  });

  it.each([
    [{ memory: '512m' }, 'limits.memoryBytes'],
    [{ cpus: 2 }, 'limits.cpus'],
    [{ limits: { memory: 1 } }, 'limits.memoryBytes'],
    [{ limits: { memoryByte: 1 } }, 'limits.memoryBytes'],
    [{ image: 'ubuntu' }, 'template'],
    [{ nmae: 'x' }, 'name'],
  ])('of a sandbox is named as it is here: %j', (body, field) => {
    expect(hint(CreateSandboxSchema, body)).toBe(`did you mean "${field}"?`);
  });

  it('is only named if the request has such a field', () => {
    expect(hint(UpdateSandboxSchema, { cwd: '/tmp' })).toBeUndefined();
    expect(hint(ExecBodySchema, { argv: ['true'], somethingElse: 1 })).toBeUndefined();
    expect(hint(ExecBodySchema, { argv: ['true'], ['x'.repeat(100_000)]: 1 })).toBeUndefined();
    expect(hint(ExecBodySchema, { argv: ['true'], __proto__: 1, constructor: 1 })).toBeUndefined();
  });

  it('of a message on a WebSocket is named, too', () => {
    expect(hint(SocketOpenSchema, { exec: { argv: ['true'], cwd: '/' } })).toBe(
      'did you mean "exec.workdir"?',
    );
  });
});
