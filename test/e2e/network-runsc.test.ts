import { networkSuite } from './network-suite.ts';

networkSuite('runsc');
