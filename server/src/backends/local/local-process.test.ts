import { describe, it } from 'vitest';
import { backendSuite } from '../../../../test/conformance/backend-suite.ts';
import { localGround, whyNoLocal } from '../../../../test/support/local-ground.ts';

const reason = whyNoLocal();
if (reason === undefined) backendSuite('local on process', () => localGround({ runtime: 'process' }));
else describe('backend local on process', () => it.skip(reason, () => {}));
