import {
  CayError,
  isCayError,
  type Capabilities,
  type Health,
  type SandboxPage,
  type Version,
} from '@cay/sdk/client';
import { isUnreached } from '@cay/sdk/system-error';
import { inCliWords } from '../lib/cli-words.ts';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson, printable } from '../lib/output.ts';
import { runningServer } from '../lib/running-server.ts';
import { showSandboxStatus } from '../lib/sandbox-status.ts';
import { addressOf, dataDirOf, logFileOf, type Address, type CommonOptions } from '../lib/settings.ts';
import { formatAge, formatBytes } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

/** As `systemctl status` has it. */
const NOT_RUNNING = 3;
const LEVELS: Record<Health['verdict'], (text: string) => string> = {
  ok: colour.green,
  warn: colour.yellow,
  critical: colour.red,
};

export const statusVerb: Verb = (program) => {
  const command = program
    .command('status')
    .description(
      `show whether the server runs and its health (exits with ${NOT_RUNNING} if it does not run), or the state of a sandbox and its commands`,
    )
    .argument('[sandbox]', 'id, name or beginning of an id');
  withCommonOptions(command).action(async (ref: string | undefined, options: CommonOptions) => {
    if (ref !== undefined) return showSandboxStatus(ref, options);
    const dataDir = dataDirOf(options);
    let version: Version;
    let address: Address | undefined;
    try {
      address = addressOf(options);
      version = await openClient(options).transport.json<Version>('GET', '/v1/version');
    } catch (error) {
      if (!isCayError(error, 'unavailable')) throw error;
      const process = address?.own ? runningServer(dataDir) : undefined;
      if (process)
        throw new CayError('unavailable', `The server runs (process ${process.pid}), and does not answer`, {
          hint: `${inCliWords(error).message}; its log is ${logFileOf(dataDir)}`,
          cause: error,
        });
      // Another failure than no connection is that of a server that is there.
      if (address && !isUnreached(error.cause)) throw error;
      return notRunning(address, dataDir, options);
    }
    const { url, own } = address;
    const client = openClient(options);
    const server = own ? runningServer(dataDir) : undefined;
    const [health, capabilities, page] = await Promise.all([
      client.transport.json<Health>('GET', '/v1/health'),
      client.transport.json<Capabilities>('GET', '/v1/capabilities'),
      client.transport.json<SandboxPage>('GET', '/v1/sandboxes', { query: { limit: 1000 } }),
    ]);
    const active = page.sandboxes.filter(({ state }) => state === 'active').length;
    const all = `${page.sandboxes.length}${page.nextCursor === null ? '' : '+'}`;
    if (options.json) {
      return printJson({
        running: true,
        url,
        version: version.version,
        backend: capabilities.backend,
        runtimes: capabilities.runtimes,
        ...(capabilities.platforms && {
          platforms: capabilities.platforms.map(({ name, away }) => ({
            name,
            ...(away !== undefined && { away }),
          })),
        }),
        health,
        sandboxes: { shown: page.sandboxes.length, active },
        ...(own && { dataDir }),
        ...(server && { pid: server.pid, startedAtMs: server.startedAtMs }),
      });
    }
    print(`${colour.green('running')} at ${url}, version ${version.version}`);
    if (server) print(`  process    ${server.pid}, for ${formatAge(Date.now() - server.startedAtMs)}`);
    for (const { name, capabilities: can, away } of capabilities.platforms ?? [
      { name: capabilities.backend, capabilities, away: undefined },
    ])
      print(
        `  backend    ${name}: ${can ? can.runtimes.join(', ') : colour.yellow(printable(`away: ${away}`))}`,
      );
    print(
      `  health     ${LEVELS[health.verdict](health.verdict)}, ${formatBytes(health.serverMemoryBytes)} of memory`,
    );
    for (const { name, level, detail } of health.checks)
      print(`    ${LEVELS[level](name.padEnd(10))} ${printable(detail)}`);
    const last = health.recentErrors.at(-1);
    if (last) print(`  last error ${formatAge(Date.now() - last.atMs)} ago: ${printable(last.message)}`);
    print(`  sandboxes  ${all}, ${active} active`);
    if (own) print(`  data       ${dataDir}, log ${logFileOf(dataDir)}`);
  });
};

function notRunning(address: Address | undefined, dataDir: string, { json }: CommonOptions): void {
  process.exitCode = NOT_RUNNING;
  const { url = null, own = true } = address ?? {};
  if (json) return printJson({ running: false, url, ...(own && { dataDir }) });
  print(`${colour.red('not running')}${url === null ? '' : ` at ${url}`}${own ? `, data ${dataDir}` : ''}`);
}
