import type { Campaign } from '../support/campaign.ts';
import { api } from './api.ts';

/** All campaigns of `npm run attacks`. */
export const CAMPAIGNS: readonly Campaign[] = [api];
