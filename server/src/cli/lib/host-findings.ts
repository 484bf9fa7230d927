/** What `cay doctor` says about the machine itself, where sandboxes work and could be walled better. */
import { lowKernelLimits } from '../../host/kernel-limits.ts';
import { readableSecrets } from '../../host/readable-secrets.ts';
import { CURRENT_RUNSC, findRunsc, runscDate } from '../../host/runtimes/find-runsc.ts';
import { parseVersion } from '../../host/runtimes/parse-version.ts';
import { missingRuncFixes } from '../../host/runtimes/runc-fixes.ts';
import { run } from '../../lib/run.ts';
import type { Finding } from '../verbs/doctor.ts';

export async function hostFindings(): Promise<Finding[]> {
  const found = await Promise.all([runscFinding(), runcFinding(), secretsFinding()]);
  return [...limitFindings(), ...found.filter((finding) => finding !== undefined)];
}

function limitFindings(): Finding[] {
  return lowKernelLimits().map(({ name, value, atLeast }) => ({
    what: 'kernel limit',
    state: 'absent',
    detail: `${name} is ${value}: sandboxes of runc and crun share it, and one can take what the others need`,
    remedy: `sysctl -w ${name}=${atLeast} (and a file in /etc/sysctl.d)`,
  }));
}

/** What a current gVisor would bring, where an older one is used. */
async function runscFinding(): Promise<Finding | undefined> {
  const program = findRunsc();
  const answer = await run(program, ['--version'], { timeoutMs: 5_000 }).catch(() => undefined);
  if (!answer) return undefined;
  const version = parseVersion('runsc', answer.stdout);
  const date = runscDate(version);
  if (date === undefined || date >= CURRENT_RUNSC)
    return { what: 'gVisor', state: 'works', detail: `${version} (${program})` };
  return {
    what: 'gVisor',
    state: 'absent',
    detail: `${version} (${program}) is old: commands take about twice as long`,
    remedy:
      'run "cay install gvisor" (needs Go, takes minutes), or install runsc from gVisor\'s own package repository; memory that was kept by another version is refused, files are not',
  };
}

async function runcFinding(): Promise<Finding | undefined> {
  const answer = await run('runc', ['--version'], { timeoutMs: 5_000 }).catch(() => undefined);
  if (!answer) return undefined;
  const version = parseVersion('runc', answer.stdout);
  const missing = missingRuncFixes(version);
  if (missing.length === 0) return undefined;
  const installed = await packageVersion();
  return {
    what: 'runc fixes',
    state: 'absent',
    detail: `${version} was published with ${missing.join('; ')}${installed === undefined ? '' : `; the package is ${installed}`}`,
    remedy:
      'install runc 1.2.8, 1.3.3, 1.4.0 or newer, or see whether your distribution has mended this package',
  };
}

/** A distribution fixes bugs without a new upstream version; the version of its package shows the fix. */
async function packageVersion(): Promise<string | undefined> {
  const answer = await run('dpkg-query', ['-W', '-f', '${Version}', 'runc'], { timeoutMs: 5_000 }).catch(
    () => undefined,
  );
  return answer?.stdout.trim() || undefined;
}

async function secretsFinding(): Promise<Finding | undefined> {
  const { found, complete } = await readableSecrets();
  if (found.length === 0) return undefined;
  return {
    what: 'readable files',
    state: 'absent',
    detail: `sandboxes of the template "base" can read: ${found.join(', ')}${complete ? '' : ' and perhaps more'}`,
    remedy: 'chmod o-r those that are secret',
  };
}
