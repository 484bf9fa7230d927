import { clientsSuite } from './clients-suite.ts';

clientsSuite('runc');
