import { describe, it } from 'vitest';
import { backendSuite } from '../../../../test/conformance/backend-suite.ts';
import { localPlatform, whyNoLocal } from '../../../../test/support/local-platform.ts';
import { whyLater } from '../../../../test/support/tier.ts';
import { openPolicy } from '../../policy/policy.ts';

const reason = whyNoLocal() ?? whyLater();
const policy = openPolicy({ runtimes: ['process'], allowProcess: true });
if (reason === undefined)
  backendSuite('local on process', () => localPlatform({ runtime: 'process', policy }));
else describe('backend local on process', () => it.skip(reason, () => {}));
