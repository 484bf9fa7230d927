/**
 * What every backend has to keep, checked through the Backend and Guest contracts only.
 *
 * A driver's test calls `backendSuite(name, factory)`. Each case names the abilities it needs; where the
 * backend's capabilities say that it lacks one, the case is skipped, and the backend's own reason is printed.
 */
import { afterAll, describe, expect } from 'vitest';
import { archiveCases } from './archives.ts';
import { changeCases } from './changes.ts';
import { cloneCases } from './clones.ts';
import { commandCases } from './commands.ts';
import { concurrencyCases } from './concurrency.ts';
import { endCases } from './ends.ts';
import { execCases } from './exec.ts';
import { faultCases } from './faults.ts';
import { fileCases } from './files.ts';
import { fileWriteCases } from './files-write.ts';
import { ownershipCases } from './files-ownership.ts';
import { forkCases } from './fork.ts';
import { freezeCases } from './freeze.ts';
import type { PlatformFactory, SuiteOptions } from './test-platform.ts';
import { hibernateCases } from './hibernate.ts';
import { hostileCases } from './hostile.ts';
import { isolationCases } from './isolation.ts';
import { lifecycleCases } from './lifecycle.ts';
import { limitCases } from './limits.ts';
import { outputCases } from './output.ts';
import { portCases } from './ports.ts';
import { ptyCases } from './pty.ts';
import { rollbackCases } from './rollback.ts';
import { snapshotCases } from './snapshots.ts';
import { makeSuite } from './suite.ts';
import { suspendCases } from './suspend.ts';
import { tarCases } from './tar.ts';
import { validationCases } from './validation.ts';
import { volumeCases } from './volumes.ts';
import { watchCases } from './watch.ts';

const AREAS = {
  lifecycle: lifecycleCases,
  validation: validationCases,
  exec: execCases,
  'ends of commands': endCases,
  output: outputCases,
  'commands by id': commandCases,
  pty: ptyCases,
  files: fileCases,
  'writing files': fileWriteCases,
  'owners and modes': ownershipCases,
  'watching files': watchCases,
  tar: tarCases,
  ports: portCases,
  limits: limitCases,
  snapshots: snapshotCases,
  clones: cloneCases,
  rollback: rollbackCases,
  'changes and files of snapshots': changeCases,
  archives: archiveCases,
  volumes: volumeCases,
  freeze: freezeCases,
  suspension: suspendCases,
  hibernation: hibernateCases,
  forks: forkCases,
  isolation: isolationCases,
  'hostile input': hostileCases,
  concurrency: concurrencyCases,
  faults: faultCases,
};

export function backendSuite(name: string, factory: PlatformFactory, options: SuiteOptions = {}): void {
  describe(`backend ${name}`, () => {
    const suite = makeSuite(name, factory, options);
    const areas = Object.entries(AREAS).filter(([area]) => options.areas?.includes(area) ?? true);
    if (options.areas && areas.length < options.areas.length)
      throw new Error(`Not all are areas: ${options.areas.join(', ')}`);
    for (const [area, cases] of areas) describe(area, () => cases(suite));

    describe('after everything was removed', () => {
      afterAll(async () => {
        // Areas remove what they made, so whatever is found here was left by the backend.
        for (const { id } of await suite.backend.list()) await suite.backend.remove(id);
      });
      suite.case('nothing is left on the host', [], async ({ skip }) => {
        expect(await suite.backend.list()).toEqual([]);
        if (suite.capabilities.abilities.snapshots) expect(await suite.snapshots.snapshots()).toEqual([]);
        if (!suite.platform.leftovers) return skip('the platform cannot look for leftovers');
        expect(await suite.platform.leftovers()).toEqual([]);
      });
    });
  });
}

export type { TestPlatform, PlatformFactory, SuiteOptions } from './test-platform.ts';
