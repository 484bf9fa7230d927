import { clientsSuite } from './clients-suite.ts';

clientsSuite('runsc');
