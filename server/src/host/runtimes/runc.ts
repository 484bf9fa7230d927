/**
 * `runc`: the host's kernel behind namespaces, a system call filter and a user mapping. The reference of its
 * kind, and everywhere.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ociRuntime, type OciOptions } from './oci.ts';
import type { Runtime } from './runtime.ts';
import { seccompProfile } from './seccomp.ts';

export function runcRuntime(options: OciOptions): Runtime {
  return ociRuntime(
    {
      name: 'runc',
      isolation: 'namespaces',
      guestGuards: false,
      bundle: { sharesKernel: true, seccomp: seccompProfile({ redirects: options.egress }) },
      flags: [],
      flagsWithoutCgroup: [],
      hint: 'install runc 1.1 or newer',
      stateFiles: (root, name) => [join(root, name)],
      recorded: (root, name) => {
        try {
          const state = JSON.parse(readFileSync(join(root, name, 'state.json'), 'utf8'));
          return { pid: Number(state.init_process_pid), startTime: Number(state.init_process_start) };
        } catch {
          return undefined;
        }
      },
      nameOf: (entry) => entry,
    },
    options,
  );
}
