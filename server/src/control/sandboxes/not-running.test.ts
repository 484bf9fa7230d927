import { describe, expect, it } from 'vitest';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { notRunning } from './not-running.ts';

const errorOf = (row: Partial<SandboxRow>) => notRunning({ id: 'sbx_1', name: 'box', ...row } as SandboxRow);

describe('notRunning()', () => {
  it.each([
    [{ state: 'stopped' }, 'Sandbox "sbx_1" is stopped'],
    [{ state: 'failed', message: 'The disk is full' }, 'Sandbox "sbx_1" has failed: The disk is full'],
    [{ state: 'destroying' }, 'Sandbox "sbx_1" is being removed'],
    [{ state: 'creating' }, 'Sandbox "sbx_1" is being created'],
  ] as const)('says it in words: %j', (row, message) => {
    expect(errorOf(row)).toMatchObject({ message, details: { sandbox: 'box', state: row.state } });
  });

  it('does not ask to start what is being removed', () => {
    expect(errorOf({ state: 'destroying' }).hint).toBeUndefined();
    expect(errorOf({ state: 'stopped' }).hint).toBe('start it first');
  });
});
