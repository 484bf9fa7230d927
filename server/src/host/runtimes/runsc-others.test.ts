/** The versions of gVisor on this machine that are not the one in use: each runs what every runtime must. */
import { it } from 'vitest';
import { runtimeSuite } from '../../../../test/conformance/runtime-suite.ts';
import { findRunsc, runscCandidates } from './find-runsc.ts';
import { runscRuntime } from './runsc.ts';

const others = runscCandidates(process.env).filter((path) => path !== findRunsc());

if (others.length === 0)
  it.skip('another runsc (skipped: there is one version; see scripts/build-runsc)', () => {});
for (const binary of others) {
  await runtimeSuite('runsc', (options) => runscRuntime({ binary, ...options }));
}
