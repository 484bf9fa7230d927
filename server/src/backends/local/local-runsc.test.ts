import { describe, it } from 'vitest';
import { backendSuite } from '../../../../test/conformance/backend-suite.ts';
import { localGround, whyNoLocal } from '../../../../test/support/local-ground.ts';

const reason = whyNoLocal();
if (reason === undefined) backendSuite('local on runsc', () => localGround({ runtime: 'runsc' }));
else describe('backend local on runsc', () => it.skip(reason, () => {}));
