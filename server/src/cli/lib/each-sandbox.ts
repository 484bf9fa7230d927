import type { Sandbox } from '@cay/sdk/client';
import { openClient } from './client.ts';
import { exitCodeOf, reportFailure } from './failure.ts';
import type { CommonOptions } from './settings.ts';

/** Does something to each of several sandboxes; one that fails does not keep the others from it. */
export async function eachSandbox(
  refs: readonly string[],
  options: CommonOptions,
  act: (sandbox: Sandbox) => Promise<unknown>,
  find: { prefix?: boolean } = {},
): Promise<void> {
  const client = openClient(options);
  for (const ref of refs) {
    try {
      await act(await client.sandbox(ref, find));
    } catch (error) {
      reportFailure(error);
      process.exitCode = exitCodeOf(error);
    }
  }
}
