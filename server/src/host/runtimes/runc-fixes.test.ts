import { describe, expect, it } from 'vitest';
import { missingRuncFixes } from './runc-fixes.ts';

describe('missingRuncFixes()', () => {
  it.each([
    ['runc 1.1.5', 2],
    ['runc 1.1.12', 1],
    ['runc 1.1.15', 1],
    ['runc 1.2.7', 1],
    ['runc 1.2.8', 0],
    ['runc 1.3.2', 1],
    ['runc 1.3.3', 0],
    ['runc 1.4.0', 0],
    ['runc 1.5.1', 0],
    ['runc 2.0.0', 0],
    ['runc 1.0.3', 2],
    ['runc unknown', 0],
  ])('knows of %s', (version, count) => expect(missingRuncFixes(version)).toHaveLength(count));
});
