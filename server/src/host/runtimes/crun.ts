/**
 * `crun`: as runc, in C and quicker. Its older versions refuse machines that have both versions of cgroups
 * mounted.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ociRuntime, type OciOptions } from './oci.ts';
import type { Runtime } from './runtime.ts';
import { seccompProfile } from './seccomp.ts';

export function crunRuntime(options: OciOptions): Runtime {
  return ociRuntime(
    {
      name: 'crun',
      isolation: 'namespaces',
      guestGuards: false,
      bundle: { sharesKernel: true, seccomp: seccompProfile({ redirects: options.egress }) },
      flags: ['--cgroup-manager', 'cgroupfs'],
      flagsWithoutCgroup: [],
      hint: 'install crun 1.8 or newer on a machine with cgroups version 2',
      stateFiles: (root, name) => [join(root, name)],
      recorded: (root, name) => {
        try {
          const state = JSON.parse(readFileSync(join(root, name, 'status'), 'utf8'));
          return { pid: Number(state.pid), startTime: Number(state['process-start-time']) };
        } catch {
          return undefined;
        }
      },
      nameOf: (entry) => entry,
    },
    options,
  );
}
