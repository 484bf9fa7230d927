import { describe, it } from 'vitest';
import { backendSuite } from '../../../../test/conformance/backend-suite.ts';
import { localPlatform, whyNoLocal } from '../../../../test/support/local-platform.ts';

const reason = whyNoLocal();
if (reason === undefined) backendSuite('local on runc', () => localPlatform({ runtime: 'runc' }));
else describe('backend local on runc', () => it.skip(reason, () => {}));
