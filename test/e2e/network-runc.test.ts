import { networkSuite } from './network-suite.ts';

networkSuite('runc');
