"""Pools of names for places, apps, songs, files and pictures.

The last fifth of every pool is kept for test tasks (see `Seeder.sample`), so each has at least twenty entries. Names
are plain words without punctuation, because an agent types them as a span of its instruction.
"""

from __future__ import annotations

from random import Random


def _pool(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(","))


def between(random: Random, low: int, high: int) -> int:
    """A whole number from `low` to `high`, three times as fast as `randint`: every new task makes a phone of them."""
    return low + int(random.random() * (high - low + 1))


# --- maps -----------------------------------------------------------------------------------------------------------

STEMS = _pool(
    "Amber Fox, Blue Lantern, Copper Kettle, Old Mill, Silver Birch, Green Door, Harbour Light, Seven Oaks, Red Sparrow,"
    "White Swan, Clock Tower, Lucky Clover, Stone Bridge, Golden Hare, Rose Garden, North Star, Little Owl, Market Hall,"
    "Pine Grove, River Bend, Quiet Corner, Iron Horse, Maple Court, Sunny Side, Black Cherry, Castle View, Long Meadow,"
    "Willow Tree, Paper Moon, Grand Avenue, Cedar House, Wild Thyme, Bright Water, Winter Palace, Hidden Valley,"
    "Violet Hill, Marble Arch, Fisher Wharf, Eagle Nest, Juniper Lane"
)
"""What a place is called; its kind follows."""
KINDS = ("Bakery", "Bistro", "Cinema", "Gallery", "Hotel", "Library", "Museum", "Pharmacy", "Pizzeria", "Supermarket")
STREETS = _pool(
    "Mill Lane, High Street, Station Road, Church Row, Park Avenue, Kingsway, Bridge Street, Orchard Close, Elm Drive,"
    "Victoria Road, Canal Walk, Queen Street, Forge Hill, Abbey Road, Garden Terrace, Windmill Lane, Chapel Street,"
    "Beech Road, Harbour Parade, Linden Way, Cross Street, Priory Lane, Quay Side, Weaver Street"
)

# --- app store ------------------------------------------------------------------------------------------------------

APP_NAMES = _pool(
    "Skyward, Pocket Chef, Trailmate, Inkwell, Budget Bee, Mindful Minute, Wordsmith, Star Atlas, Fit Circle, Petpal,"
    "Photo Loom, Lingo Leap, Bike Buddy, Quick Scan, Garden Guru, Chess Master, Cloud Locker, Daily Puzzle, Train Timer,"
    "Sleep Harbour, Recipe Box, Voice Memo Plus, Run Tracker, Paint Studio, Weather Eye, Piano Coach, Bird Finder,"
    "Tide Table, Card Castle, Movie Shelf, Plant Doctor, Metro Map, Habit Tree, Storm Radar, Yoga Nest, Book Nook,"
    "Surf Report, Tax Helper, Robot Rally, Zen Timer"
)
DEVELOPERS = _pool(
    "Bluebird Labs, Northwind Software, Tiny Anvil, Paper Crane Studio, Osprey Apps, Lantern Works, Quokka Digital,"
    "Redwood Code, Granite Soft, Mellow Bytes, Half Moon Games, Brightside, Cobalt Forge, Puffin Press, Saltmarsh,"
    "Orbit Nine, Wren and Sons, Kite Software, Old Oak Media, Fable Factory"
)

# --- music ----------------------------------------------------------------------------------------------------------

SONGS = _pool(
    "Midnight Train, Paper Boats, Golden Hour, Electric Rain, Slow River, Neon Garden, Lost Letters, Summer Ghost,"
    "Broken Compass, Velvet Sky, Dancing Alone, City of Glass, Wild Horses Run, Northern Lights, Empty Chairs,"
    "Cherry Wine, Falling Upward, Silent Radio, Ocean Floor, Burning Maps, Satellite Heart, Winter Sun, Gravel Road,"
    "Mirror Lake, Hollow Drum, Tomorrow Maybe, Blue Umbrella, Kingdom Come, Static Love, Desert Bloom, Second Chance,"
    "Lighthouse, Sugar and Smoke, Marching Home, Fireflies, Open Window, Thunder Road, Porcelain, Runaway Moon,"
    "Last Goodbye, Crystal Tears, Echo Valley, Morning Coffee, Dust and Gold, Silver Lining, Twilight Avenue,"
    "Feather Light, Anchor Down, Marble Statue, Violet Dawn"
)
ARTISTS = _pool(
    "Mara Quinn, The Lanterns, Otto Vale, Juno Park, Harbour Boys, Selma Frost, Night Parade, Theo Marsh, Coral Bay,"
    "Iris Noor, Tin Soldiers, Rosa Lind, Felix Grey, The Paper Kites Club, Ada Storm, Milo West, Glass Animals Trio,"
    "Nina Holt, Wolf and Wren, Leo Sand, Saint Avenue, Vera Bloom, Kite District, Hugo Blanc, Clara Dune"
)
RECORDS = _pool(
    "Small Hours, Distant Shores, Colour Theory, Homeward, Paper Crown, Analogue Dreams, Field Notes, Saltwater,"
    "First Light, Undertow, Postcards, Night Swimming, Roots and Wires, Half Asleep, Long Way Round, Tidal, Warm Static,"
    "Northbound, Afterglow, Quiet Machines, Wilderness, Blue Hour, Old Photographs, Carousel, Featherweight"
)
"""Names of albums."""
PLAYLISTS = _pool(
    "Rainy Evenings, Morning Run, Road Trip, Deep Focus, Dinner Party, Sunday Chill, Gym Power, Late Night Drive,"
    "Beach Day, Study Time, Feel Good, Throwback Hits, Cooking Mix, Sleep Well, Party Starters, Garden Work, Slow Dance,"
    "Train Ride, Coffee Break, Winter Fireside, Office Hours, Spring Cleaning, Campfire, Power Nap, Autumn Walk,"
    "Happy Hour, Workout Boost, Quiet Reading, Karaoke Night, Golden Oldies"
)

# --- files ----------------------------------------------------------------------------------------------------------

FILE_NAMES = _pool(
    "Travel budget, Meeting notes, Rental contract, Tax return, Recipe collection, Floor plan, Insurance policy,"
    "Birthday invitation, Project proposal, Bank statement, Shopping list, Exam results, Boarding pass, Hiking map,"
    "Thesis draft, Salary slip, Guest list, Car manual, Warranty card, Medical report, Wedding speech, Book summary,"
    "Tournament schedule, Garden sketch, Client feedback, Packing list, Energy bill, School timetable, Novel chapter,"
    "Vaccination record, Concert ticket, Phone invoice, Language exercises, Club newsletter, Parking permit,"
    "Training plan, Museum guide, Holiday photos backup, Repair estimate, Cover letter, Reading log, Donation receipt,"
    "Choir music, Kitchen quote, Quarterly figures, Family tree, Visa application, Bike lease, Poster design, Lab journal"
)
FOLDERS = ("Archive", "Documents", "Downloads", "Household", "Personal", "Shared", "Work")
"""Folders that every phone has."""
NEW_FOLDERS = _pool(
    "Invoices, Holiday plans, University, Old letters, Receipts, Client work, Recipes, Side project, House move,"
    "Certificates, Club papers, Manuals, Drafts, Presentations, Tickets, Health, Car papers, Kids school, Research,"
    "Contracts, Scans, Garden ideas, Job search, Band practice, Legal matters"
)

# --- photos ---------------------------------------------------------------------------------------------------------

CAPTIONS = _pool(
    "Sunset at the pier, Birthday cake, First snow, Grandma laughing, Kitten asleep, Team picture, Mountain hut,"
    "Rainbow over town, Breakfast in bed, New bicycle, Beach volleyball, Campfire songs, Old bridge, Wedding dance,"
    "Tulip field, Market stall, Puppy on the sofa, Concert crowd, Foggy forest, Chess final, Lantern parade,"
    "Ice cream stop, Harbour at dawn, Garden party, Train window, School play, Waterfall walk, Pancake stack,"
    "Starry night, Street musician, Red balloon, Castle gate, Picnic blanket, Autumn leaves, Goal celebration,"
    "Lighthouse steps, Family selfie, Desert road, Book fair, Fireworks finale"
)
TOWNS = _pool(
    "Lisbon, Bergen, Kyoto, Valencia, Bath, Ghent, Porto, Zurich, Galway, Riga, Bologna, Oslo, Utrecht, Malaga, Lucerne,"
    "Bruges, Turin, Aarhus, York, Salzburg, Tallinn, Nantes, Split, Toledo"
)
ALBUMS = ("Camera", "Family", "Friends", "Nature", "Trips")
"""Albums that every phone has."""
NEW_ALBUMS = _pool(
    "Summer holiday, Best moments, Our garden, City breaks, Baby pictures, Food diary, Road trip, Winter sports, Concerts,"
    "Wedding day, Pets, Old friends, Street art, Graduation, Sailing tour, Birthday party, Wild flowers, Night skies,"
    "Football season, House building, Market days, Museum visits, Mountain hikes, Sunrise collection, School days"
)
SCREENS_NEARBY = ("Kitchen tablet", "Living room TV", "Bedroom TV", "Office printer", "Old laptop", "Picture frame")
"""Where a picture can be sent."""
