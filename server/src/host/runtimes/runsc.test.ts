import { runtimeSuite } from '../../../../test/conformance/runtime-suite.ts';
import { runscRuntime } from './runsc.ts';

await runtimeSuite('runsc', runscRuntime);
