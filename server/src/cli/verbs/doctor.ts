/**
 * Tests whether sandboxes work here by starting one on each runtime, and says how to fix what does not.
 */
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  isCayError,
  type Capabilities,
  type Orphans,
  type SandboxId,
  type SandboxSpec,
} from '@cay/sdk/client';
import { systemReason } from '@cay/sdk/system-error';
import { withoutUnenforceable } from '../../backends/support/check-spec.ts';
import { resolveSettings } from '../../settings/resolve-settings.ts';
import type { BackendName } from '../../settings.ts';
import { settingOption } from '../lib/settings-options.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { openClient } from '../lib/client.ts';
import { inCliWords } from '../lib/cli-words.ts';
import { networkFinding } from '../lib/network-finding.ts';
import { usageError } from '../lib/failure.ts';
import { hostFindings } from '../lib/host-findings.ts';
import { colour, print, printJson, printable, table } from '../lib/output.ts';
import { policyText } from '../lib/policy-text.ts';
import { runningServer } from '../lib/running-server.ts';
import { dataDirOf, isOwnServer, type CommonOptions, type ServerFile } from '../lib/settings.ts';
import type { Composition, OpenedBackend, Verb } from '../verb.ts';

export interface Finding {
  what: string;
  state: 'works' | 'missing' | 'absent';
  detail: string;
  /** The command that fixes it. */
  remedy?: string;
}

interface Options extends CommonOptions {
  backend?: string;
  sweep?: boolean;
  dryRun?: boolean;
}

const RUNTIMES = ['runsc', 'crun', 'runc'] as const;
const REMEDIES: Record<string, string> = {
  runsc: 'scripts/install-host',
  runc: 'scripts/install-host',
  crun: 'apt-get install crun (needs a machine with cgroup v2 alone)',
};
const PROBE = 'import os; print(sum(range(10)), os.getuid())';

export const doctorVerb: Verb = (program, composition) => {
  const command = program
    .command('doctor')
    .description('start a sandbox on each runtime; show what works, what is missing and how to fix it')
    .addOption(settingOption('backend', 'which backend to look at, or several with commas between them'));
  withCommonOptions(command)
    .option('--sweep', 'remove orphans from the machine and list them; nothing else is tested')
    .option('--dry-run', 'with --sweep: only list it')
    .addHelpText('after', '\nExits with 1 if sandboxes cannot work with the default settings.')
    .action(async (options: Options) => {
      if (options.dryRun && !options.sweep) throw usageError('--dry-run belongs to --sweep');
      if (options.sweep) return sweep(composition, options);
      const findings: Finding[] = [];
      const add = (finding: Finding) => {
        findings.push(finding);
        if (!options.json) show(finding);
      };
      add(nodeFinding());
      const names = backendsOf(options);
      if (names.includes('local')) add(rootFinding());
      // Without root the local backend fails in many ways, of which root is the one cause.
      const tried = names.filter((name) => name !== 'local' || process.getuid?.() === 0);
      for (const name of tried)
        await tryBackend(composition, name, { engine: join(dataDirOf(options), 'engine'), add });
      if (names.includes('local')) for (const finding of await hostFindings()) add(finding);
      for (const finding of await serverFindings(options)) add(finding);
      const healthy = findings.every(({ state }) => state !== 'missing');
      if (options.json) printJson({ healthy, findings });
      else
        print(
          healthy
            ? `\n${colour.green('Sandboxes work here.')}`
            : `\n${colour.red('Sandboxes do not work here yet.')}`,
        );
      process.exitCode = healthy ? 0 : 1;
    });
};

/**
 * The server of the data directory does it. Without a server the backend is opened, which sweeps; with
 * `--dry-run` it is only surveyed.
 */
async function sweep(composition: Composition, options: Options): Promise<void> {
  const dryRun = options.dryRun ?? false;
  const orphans =
    isOwnServer(options) && !runningServer(dataDirOf(options))
      ? await sweepAlone(composition, options, dryRun)
      : (
          await openClient(options).transport.json<Orphans>('POST', '/v1/admin/sweep', {
            query: { dryRun: dryRun ? '1' : '0' },
          })
        ).orphans;
  if (options.json) return printJson({ dryRun, orphans });
  if (orphans.length === 0) return print(colour.green('There are no orphans.'));
  print(
    table(
      ['KIND', 'NAME'],
      orphans.map(({ kind, name }) => [kind, printable(name)]),
    ),
  );
  print(dryRun ? `\n${orphans.length} orphans; none was removed.` : `\n${orphans.length} removed.`);
}

async function sweepAlone(
  composition: Composition,
  options: Options,
  dryRun: boolean,
): Promise<Orphans['orphans']> {
  const dataDir = dataDirOf(options);
  const orphans: Orphans['orphans'] = [];
  const dir = join(dataDir, 'engine');
  // The local backend keeps everything in that directory.
  const names = backendsOf(options).filter((name) => name !== 'local' || existsSync(dir));
  if (names.length === 0) return orphans;
  if (dryRun) return composition.surveyBackend(names.join(','), { dir });
  const backend = await composition.openBackend(names.join(','), {
    dir,
    poolSize: 0,
    onSwept: (found) => orphans.push(...found),
  });
  // Not every backend sweeps when it is opened.
  orphans.push(...((await backend.ability('sweep')?.sweep()) ?? []));
  await backend.close();
  return orphans;
}

function backendsOf({ backend }: Options): BackendName[] {
  return resolveSettings({ backend }, process.env).settings.backend;
}

function nodeFinding(): Finding {
  return { what: 'node', state: 'works', detail: process.version };
}

function rootFinding(): Finding {
  if (process.getuid?.() === 0)
    return { what: 'root', state: 'works', detail: 'namespaces, cgroups and mounts can be made' };
  return {
    what: 'root',
    state: 'missing',
    detail: 'the local backend needs it',
    remedy: 'run with sudo, or use --backend docker or --backend memory',
  };
}

/**
 * In a directory of its own, so that running sandboxes and their files are not touched. On a cluster objects
 * belong to an installation, so there it is tried as this installation, and only its own probe is removed.
 */
async function tryBackend(
  composition: Composition,
  name: string,
  { engine, add }: { engine: string; add(finding: Finding): void },
): Promise<void> {
  const onCluster = composition.clusterBackends.includes(name);
  const scratch = await mkdtemp('/tmp/cay-doctor-');
  const dir = onCluster ? engine : scratch;
  let backend: OpenedBackend | undefined;
  try {
    backend = await composition.openBackend(name, { dir, poolSize: 0 });
    const { runtimes, abilities, notes } = await backend.capabilities();
    add({ what: 'backend', state: 'works', detail: `${name} is open` });
    let some = false;
    for (const runtime of name === 'local' ? RUNTIMES : runtimes) {
      const asked: { runtime?: string; limits?: object } = name === 'memory' ? {} : { runtime };
      const wanted = withoutUnenforceable(asked, abilities);
      const finding = await tryRuntime(backend, runtime, runtimes.includes(runtime) ? wanted : undefined);
      some ||= finding.state === 'works';
      add(finding);
    }
    if (!some)
      add({
        what: 'isolation',
        state: 'missing',
        detail: 'no runtime isolates sandboxes',
        remedy: 'scripts/install-host',
      });
    const network = await networkFinding(backend);
    if (network) add(network);
    for (const [ability, works] of Object.entries(abilities)) {
      if (!works)
        add({
          what: ability,
          state: 'absent',
          detail: notes[ability as keyof typeof notes] ?? 'not on this machine',
        });
    }
  } catch (error) {
    const { message, hint } = error as { message: string; hint?: string };
    const remedy = hint ?? (name === 'local' ? 'scripts/install-host && scripts/build-guest' : undefined);
    add({ what: 'backend', state: 'missing', detail: message, ...(remedy !== undefined && { remedy }) });
  } finally {
    const ended = onCluster ? backend?.close() : backend?.destroy();
    await ended?.catch((error: unknown) =>
      add({ what: 'clean-up', state: 'absent', detail: String(systemReason(error)) }),
    );
    await rm(scratch, { recursive: true, force: true }).catch(() => {});
  }
}

/** `wanted` is the spec to try; absent if this machine does not have the runtime. */
async function tryRuntime(
  backend: OpenedBackend,
  runtime: string,
  wanted: object | undefined,
): Promise<Finding> {
  const remedy = REMEDIES[runtime];
  if (!wanted)
    return {
      what: runtime,
      state: 'absent',
      detail: 'not usable on this machine',
      ...(remedy !== undefined && { remedy }),
    };
  const [{ newId, SandboxSpecSchema }, { collect }] = await Promise.all([
    import('@cay/sdk/protocol'),
    import('../../guest/collect.ts'),
  ]);
  const id = newId('sbx');
  const spec = SandboxSpecSchema.parse(wanted);
  try {
    const begun = performance.now();
    await backend.ensure(id, spec);
    const started = performance.now();
    const guest = await backend.connect(id);
    const handle = await guest.exec({
      id: newId('cmd'),
      shell: `python3 -c '${PROBE}' || echo 45 $(id -u)`,
      env: spec.env,
      workdir: spec.workdir,
      user: spec.user,
    });
    const { stdout, end } = await collect(handle, { maxBytes: 4096 });
    const said = stdout.toString().trim();
    if (end.kind !== 'exited' || !said.startsWith('45'))
      return { what: runtime, state: 'absent', detail: `a command gave "${said}" and ended as ${end.kind}` };
    const ran = performance.now();
    const slept = await hibernates(backend, id, spec);
    return {
      what: runtime,
      state: 'works',
      detail: `sandbox in ${Math.round(started - begun)} ms, command in ${Math.round(ran - started)} ms, ${slept}`,
    };
  } catch (error) {
    return {
      what: runtime,
      state: 'absent',
      detail: systemReason(error),
      ...(remedy !== undefined && { remedy }),
    };
  } finally {
    await backend.remove(id).catch(() => {});
  }
}

/** How long hibernating and waking take, or that they do not work. */
async function hibernates(backend: OpenedBackend, id: SandboxId, spec: SandboxSpec): Promise<string> {
  const hibernating = backend.ability('memorySnapshots');
  if (!hibernating) return 'no hibernation';
  try {
    const begun = performance.now();
    await hibernating.hibernate(id);
    const asleep = performance.now();
    await backend.ensure(id, spec);
    return `hibernated in ${Math.round(asleep - begun)} ms and awake in ${Math.round(performance.now() - asleep)} ms`;
  } catch (error) {
    return isCayError(error, 'unsupported') ? 'no hibernation' : `hibernation fails: ${systemReason(error)}`;
  }
}

async function serverFindings(options: CommonOptions): Promise<Finding[]> {
  const dataDir = dataDirOf(options);
  let server: ServerFile | undefined;
  try {
    server = runningServer(dataDir);
  } catch (error) {
    const { message, hint } = inCliWords(error);
    return [
      { what: 'server', state: 'absent', detail: message, ...(hint !== undefined && { remedy: hint }) },
    ];
  }
  if (!server)
    return [
      { what: 'server', state: 'absent', detail: `none runs for ${dataDir}`, remedy: 'cay up --detach' },
    ];
  try {
    const { transport } = openClient(options);
    await transport.json('GET', '/readyz');
    const works: Finding = { what: 'server', state: 'works', detail: `${server.url}, process ${server.pid}` };
    const { policy } = await transport.json<Capabilities>('GET', '/v1/capabilities');
    return policy ? [works, { what: 'policy', state: 'works', detail: policyText(policy) }] : [works];
  } catch (error) {
    return [
      {
        what: 'server',
        state: 'missing',
        detail: systemReason(error),
        remedy: 'cay down && cay up --detach',
      },
    ];
  }
}

function show({ what, state, detail, remedy }: Finding): void {
  const mark = { works: colour.green('✓'), missing: colour.red('✗'), absent: colour.yellow('–') }[state];
  print(`${mark} ${what.padEnd(14)} ${printable(detail)}`);
  if (remedy !== undefined) print(`  ${' '.repeat(14)} ${colour.cyan('hint:')} ${remedy}`);
}
