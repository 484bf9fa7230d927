import { CayError } from '@cay/sdk/protocol';

/** The error for a data directory that another server has locked; `pid` is that of the server, if known. */
export function directoryInUse(
  directory: string,
  pid: unknown,
  hint = 'stop that server, or choose another data directory',
): CayError {
  const known = typeof pid === 'number';
  return new CayError(
    'failed_precondition',
    `Cannot use "${directory}": another server has it${known ? ` (process ${pid})` : ''}`,
    { details: { pid: known ? pid : null }, hint },
  );
}
