import { secretsSuite } from './secrets-suite.ts';

secretsSuite('runsc');
