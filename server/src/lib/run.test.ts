import { describe } from 'vitest';
import { runSuite } from '../../../test/conformance/run-suite.ts';

describe('run()', runSuite);
