import { runtimeSuite } from '../../../../test/conformance/runtime-suite.ts';
import { runcRuntime } from './runc.ts';

await runtimeSuite('runc', runcRuntime);
