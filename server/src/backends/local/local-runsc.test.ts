import { describe, it } from 'vitest';
import { backendSuite } from '../../../../test/conformance/backend-suite.ts';
import { localPlatform, whyNoLocal } from '../../../../test/support/local-platform.ts';
import { whyLater } from '../../../../test/support/tier.ts';

const reason = whyNoLocal();
// A start of gVisor takes a second of both processors where others start too.
const sandboxes = whyLater() === undefined ? 50 : 15;
if (reason === undefined)
  backendSuite('local on runsc', () => localPlatform({ runtime: 'runsc' }), { sandboxes });
else describe('backend local on runsc', () => it.skip(reason, () => {}));
