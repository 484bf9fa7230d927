import { runtimeSuite } from '../../../../test/conformance/runtime-suite.ts';
import { processRuntime } from './process.ts';

await runtimeSuite('process', processRuntime, { ids: { hostId: 0, size: 65_536 } });
