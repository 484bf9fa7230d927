import { CayError } from '@cay/sdk/protocol';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';

const WORDS: Partial<Record<SandboxRow['state'], string>> = {
  creating: 'is being created',
  destroying: 'is being removed',
  failed: 'has failed',
};

/** A state as the end of a sentence about a sandbox. */
export const stateWords = (state: SandboxRow['state']): string => WORDS[state] ?? `is ${state}`;

/** The state of a sandbox does not allow what the caller asks for. */
export function notRunning(row: SandboxRow): CayError {
  return new CayError(
    'failed_precondition',
    `Sandbox "${row.id}" ${stateWords(row.state)}${row.message ? `: ${row.message}` : ''}`,
    {
      details: { sandbox: row.name ?? row.id, state: row.state, ...(row.reason && { reason: row.reason }) },
      hint: row.state === 'destroying' ? undefined : 'start it first',
    },
  );
}

/** What a visitor of a preview gets instead: why a sandbox does not run is not for visitors. */
export function notRunningForVisitors(cause?: unknown): CayError {
  return new CayError('unavailable', 'The sandbox behind this preview is not running', { cause });
}
