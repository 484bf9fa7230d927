import { isCayError, type Version } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { VERSION } from '../lib/version.ts';
import type { Verb } from '../verb.ts';

export const versionVerb: Verb = (program) => {
  const command = program
    .command('version')
    .description('print the version of the command line, and of the server if one answers');
  withCommonOptions(command).action(async (options: CommonOptions) => {
    const server = await serverVersion(options);
    if (options.json) return printJson({ client: VERSION, server: server ?? null, node: process.version });
    print(`client  ${VERSION} (Node ${process.version})`);
    print(`server  ${server ?? 'no answer'}`);
  });
};

/** The client's own version is of use without a server, or without the right to read its directory. */
async function serverVersion(options: CommonOptions): Promise<string | undefined> {
  try {
    const { version } = await openClient(options).transport.json<Version>('GET', '/v1/version');
    return version;
  } catch (error) {
    if (isCayError(error, 'unavailable') || isCayError(error, 'permission_denied')) return undefined;
    throw error;
  }
}
