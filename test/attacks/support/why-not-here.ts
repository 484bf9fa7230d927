import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { whyNoDockerd } from '../../support/dockerd.ts';
import type { TargetOptions } from './target.ts';

/** As `--target` of the runner has it: `memory`, `local:runc`. */
export function targetName({ backend, runtime }: TargetOptions): string {
  return runtime === undefined ? backend : `${backend}:${runtime}`;
}

/** Why this target cannot be started on this machine, or `undefined` if it can. */
export function whyNotHere({ backend, runtime }: TargetOptions): string | undefined {
  if (backend === 'memory') return undefined;
  if (backend === 'docker') return whyNoDockerd();
  if (process.getuid?.() !== 0) return 'sandboxes on this machine need root';
  return runtime === undefined || installed(runtime) ? undefined : `${runtime} is not installed`;
}

function installed(program: string): boolean {
  const directories = (process.env['PATH'] ?? '').split(':').concat('/usr/sbin', '/sbin', '/usr/local/bin');
  return directories.some((directory) => directory !== '' && existsSync(join(directory, program)));
}
